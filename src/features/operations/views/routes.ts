import type { FastifyRequest } from 'fastify'
import { identified } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import { newId } from '../../../adapters/ids.ts'
import { Type } from '../../../adapters/typebox.ts'
import { hasNul, nulRefused } from '../../../catalog/values.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import {
  Anything,
  Filled,
  Id,
  IdParams,
  Moment,
  Nothing,
  NullableId,
  NullableText,
  Text,
} from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'

/** Saved views of the signed-in user. Row changes are their only events. */
export function viewRoutes(app: App, deps: Reads & Writes & CurrentAccess): void {
  app.get('/views', listRoute, async (request) => ({ data: await listViews(deps, request, request.query) }))
  app.post('/views', createRoute, async (request, reply) =>
    reply.code(201).send({ data: await createView(deps, request, request.body) }),
  )
  app.patch('/views/:id', changeRoute, async (request) => ({
    data: await updateView(deps, request, request.params.id, request.body),
  }))
  app.delete('/views/:id', removeRoute, async (request, reply) => {
    await deleteView(deps, request, request.params.id)
    return reply.code(204).send()
  })
}

const declared = routesOf('Settings')

const members = {
  name: Filled('Overdue', { maxLength: 200, refusal: 'name must be 1 to 200 characters' }),
  page: Filled('data', { maxLength: 50, refusal: 'page is required' }),
  collection: Type.Optional(NullableText('invoice', { maxLength: 63 })),
  query: Type.Record(Type.String(), Type.Unknown(), {
    description: 'The settings of the page, in its own form.',
    examples: [{ filter: { status: 'open' }, sort: '-dueAt' }],
    refusal: 'query must be an object',
  }),
  role_Id: Type.Optional(
    NullableId({ description: 'Administrators: the role that it is shared with.', refusal: 'role_Id must be an id' }),
  ),
}
const Saved = Type.Object({
  id: Id(),
  name: Text('Overdue'),
  page: Text('data'),
  collection: NullableText('invoice'),
  query: Anything({ filter: { status: 'open' } }),
  role_Id: NullableId(),
  isOwn: Type.Boolean(),
  createdAt: Moment(),
  updatedAt: Moment(),
})

const listRoute = declared({
  summary: 'List your saved views, and those shared with your role',
  scope: 'read',
  query: Type.Object({
    page: Type.Optional(Text('data', { description: 'Of one page.' })),
    collection: Type.Optional(Text('invoice', { description: 'Of one collection.' })),
  }),
  response: { 200: Type.Object({ data: Type.Array(Saved) }) },
})
const createRoute = declared({
  summary: 'Save a view',
  scope: 'write',
  body: Type.Object(members, { refusal: 'Request body must be an object' }),
  response: { 201: Type.Object({ data: Saved }) },
  sendsText: true,
})
const changeRoute = declared({
  summary: 'Change a saved view',
  scope: 'write',
  params: IdParams,
  body: Type.Partial(Type.Object(members)),
  response: { 200: Type.Object({ data: Saved }) },
})
const removeRoute = declared({
  summary: 'Delete a saved view',
  scope: 'write',
  params: IdParams,
  response: { 204: Nothing },
  sendsText: true,
})

/**
 * Views that people save: what a page of the console is set to. Everybody keeps their own; an administrator shares one with
 * a role, whose users then see it and cannot change it. They are rows of svc_View, so the log has who changed them.
 */
type SavedView = {
  readonly id: string
  readonly name: string
  readonly page: string
  readonly collection: string | null
  readonly query: unknown
  readonly role_Id: string | null
  /** Of the caller. */
  readonly isOwn: boolean
  readonly createdAt: string
  readonly updatedAt: string
}

type ViewBody = {
  readonly name?: string
  readonly page?: string
  readonly collection?: string | null
  readonly query?: unknown
  readonly role_Id?: string | null
}

const viewsAtMost = 200
const longestQuery = 16_384

const columns = (
  user: string,
) => `v.id, v.name, v.page, v.collection, v.query, v."role_Id", v."user_Id" = ${user} as "isOwn",
  to_char(v."createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
  to_char(v."updatedAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "updatedAt"`

/** Own ones, and those that are shared with the caller's role, here or everywhere. */
function listViews(
  { db }: Reads,
  request: FastifyRequest,
  { page, collection }: { readonly page?: string; readonly collection?: string },
): Promise<readonly SavedView[]> {
  const { userId, role, tenantId } = identified(request.caller)
  return db.any<SavedView>(
    rawQuery(
      `select ${columns('$1')} from "svc_View" v
       where (v."user_Id" = $1 or (v."role_Id" = $2 and (v."tenant_Id" is null or v."tenant_Id" = $3::uuid)))
         and ($4::text is null or v.page = $4) and ($5::text is null or v.collection = $5)
       order by v.name, v.id`,
      [userId, role.id, tenantId ?? null, page ?? null, collection ?? null],
    ),
  )
}

/** 403 for sharing by others than administrators, 409 for more than 200 of one user. */
async function createView(deps: CurrentAccess & Writes, request: FastifyRequest, body: ViewBody): Promise<SavedView> {
  const { userId, tenantId } = identified(request.caller)
  checkContent(deps, request, body)
  return commit(deps, actorOf(request), async (tx) => {
    await tx.any(rawQuery(`select id from "svc_User" where id = $1 for no key update`, [userId]))
    const { count } = await tx.one<{ count: number }>(
      rawQuery(`select count(*)::int as count from "svc_View" where "user_Id" = $1`, [userId]),
    )
    if (count >= viewsAtMost) throw errors.conflict(`Nobody can keep more than ${viewsAtMost} views`)
    const { name, page, collection = null, query, role_Id: roleId = null } = body
    const id = newId()
    await tx.any(
      rawQuery(
        `insert into "svc_View" (id, name, page, collection, query, "user_Id", "role_Id", "tenant_Id")
         values ($1, $2, $3, $4, $5::jsonb, $6, $7, $8)`,
        [id, name!, page!, collection, JSON.stringify(query), userId, roleId, tenantId ?? null],
      ),
    )
    return { result: await viewOf(tx, id, userId) }
  })
}

/** 404 for a view that the caller cannot see, 403 for one that they cannot change. */
async function updateView(
  deps: CurrentAccess & Writes,
  request: FastifyRequest,
  id: string,
  body: ViewBody,
): Promise<SavedView> {
  const { userId } = identified(request.caller)
  checkContent(deps, request, body)
  return commit(deps, actorOf(request), async (tx) => {
    await lockOwn(tx, request, id)
    const given = (name: keyof ViewBody) => body[name] !== undefined
    await tx.any(
      rawQuery(
        `update "svc_View" set name = coalesce($2, name), page = coalesce($3, page),
           collection = case when $4 then $5 else collection end, query = coalesce($6::jsonb, query),
           "role_Id" = case when $7 then $8::uuid else "role_Id" end, "updatedAt" = now() where id = $1`,
        [
          id,
          body.name ?? null,
          body.page ?? null,
          given('collection'),
          body.collection ?? null,
          given('query') ? JSON.stringify(body.query) : null,
          given('role_Id'),
          body.role_Id ?? null,
        ],
      ),
    )
    return { result: await viewOf(tx, id, userId) }
  })
}

async function deleteView(deps: Writes, request: FastifyRequest, id: string): Promise<void> {
  await commit(deps, actorOf(request), async (tx) => {
    await lockOwn(tx, request, id)
    await tx.any(rawQuery(`delete from "svc_View" where id = $1`, [id]))
    return { result: undefined }
  })
}

function checkContent({ access }: CurrentAccess, { caller }: FastifyRequest, body: ViewBody): void {
  refuseNul(body)
  const { query, role_Id: roleId } = body
  if (query !== undefined && JSON.stringify(query).length > longestQuery)
    throw new AppError(413, `query must be at most ${longestQuery} characters of JSON`)
  if (roleId === undefined || roleId === null) return
  if (!caller.admin) throw new AppError(403, 'Only administrators share views')
  if (!access.current().roles.has(roleId)) throw new AppError(404, 'Role not found')
}

function refuseNul(body: ViewBody): void {
  const broken = Object.entries(body).filter(([, value]) => value !== undefined && hasNul(JSON.stringify(value)))
  if (broken.length > 0)
    throw errors.validation(broken.map(([field]) => ({ field, message: nulRefused, rule: 'type' })))
}

async function lockOwn(tx: Tx, { caller }: FastifyRequest, id: string): Promise<void> {
  const { userId, role, admin } = identified(caller)
  const found = isUuid(id)
    ? await tx.maybeOne<{ isOwn: boolean; isShared: boolean; isMine: boolean }>(
        rawQuery(
          `select "user_Id" = $2 as "isOwn", "role_Id" is not null as "isShared", "role_Id" = $3 as "isMine"
           from "svc_View" where id = $1 for update`,
          [id, userId, role.id],
        ),
      )
    : undefined
  if (found === undefined || !(found.isOwn || found.isMine || (admin && found.isShared)))
    throw new AppError(404, 'View not found')
  if (!found.isOwn && !admin) throw new AppError(403, 'Only its owner and administrators change a shared view')
}

const viewOf = (db: Reader, id: string, userId: string): Promise<SavedView> =>
  db.one<SavedView>(rawQuery(`select ${columns('$2')} from "svc_View" v where v.id = $1`, [id, userId]))

import type { FastifyRequest } from 'fastify'
import { signedIn } from '../../../access/principal.ts'
import { type CurrentAccess, roleIn } from '../../../access/store.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { deletePreview, type PreviewOf, upsertPreview } from '../../../db/unlogged/sessions.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { Id, Moment, NullableText, Said, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import { type AuthWrites, authRoutes, prepare } from '../auth/auth.ts'

/** Administrators with a session. Emits auth.preview_started. */
export function previewAdminRoutes(app: App, deps: AuthWrites): void {
  prepare(app)
  app.post('/auth/preview', startRoute, async (request) => ({
    preview: await startPreview(deps, request, request.body),
  }))
}

/**
 * Open to every session that has begun a preview: an administrator who loses the role must not be caught in it. Emits
 * auth.preview_stopped.
 */
export function previewRoutes(app: App, deps: AuthWrites): void {
  prepare(app)
  app.get('/auth/preview', readRoute, async (request) => ({ preview: (await readPreview(deps, request)) ?? null }))
  app.delete('/auth/preview', stopRoute, async (request) => {
    await stopPreview(deps, request)
    return { message: 'Preview stopped' }
  })
}

const declared = authRoutes('Sessions')
const asOwner = { config: { inPreview: 'as owner' } } as const

const NullableNamed = Type.Union([Type.Object({ id: Id(), name: Text('editor') }), Type.Null()])
const Preview = Type.Object({
  startedAt: Moment(),
  user: Type.Union([
    Type.Object({ id: Id(), email: NullableText('ada@example.com'), firstName: Text('Ada') }),
    Type.Null(),
  ]),
  role: NullableNamed,
  tenant: NullableNamed,
})

const PreviewBody = Type.Object({
  user: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'The id of a user.' })),
  role: Type.Optional(Text('user', { description: 'Instead: the id or name of a role.' })),
  tenant: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Where; the first one without.' })),
})

const startRoute = declared(
  {
    summary: 'See as somebody else',
    scope: 'none',
    description:
      'Until it is stopped or the session ends, everything that comes with the session (requests, sockets, tools) reads with the rights of the user or role, and can change nothing: 403 `PREVIEW_READ_ONLY`.',
    body: PreviewBody,
    response: { 200: Type.Object({ preview: Preview }) },
  },
  asOwner,
)
const readRoute = declared(
  {
    summary: 'Read whose view your session shows',
    scope: 'none',
    response: { 200: Type.Object({ preview: Type.Union([Preview, Type.Null()]) }) },
  },
  asOwner,
)
const stopRoute = declared(
  { summary: 'See as yourself again', scope: 'none', response: { 200: Said('Preview stopped') } },
  asOwner,
)

/**
 * "See as Ada": from now on the administrator's session reads with the rights of another, until it is stopped or the
 * session ends. The session itself says so, so that pages, sockets, images and tools see the same; see ADR 66.
 */

type PreviewRequest = {
  readonly user?: string | undefined
  readonly role?: string | undefined
  readonly tenant?: string | undefined
}

/** The preview of a session. Null members no longer exist. */
type PreviewState = {
  readonly startedAt: string
  readonly user: { readonly id: string; readonly email: string | null; readonly firstName: string } | null
  readonly role: { readonly id: string; readonly name: string } | null
  readonly tenant: { readonly id: string; readonly name: string } | null
}

type PreviewReads = Reads & ReservedReads & Configuration & CurrentAccess

/**
 * Begins a preview, in the place of one that there may be. All requests of the session see it when this resolves.
 *
 * @throws {AppError} 400 unless it is of a user or a role, 404 for an unknown one, 409 for a user who cannot sign in
 */
async function startPreview(
  deps: PreviewReads & Writes,
  request: FastifyRequest,
  wanted: PreviewRequest,
): Promise<PreviewState> {
  const { sessionId, userId } = signedIn(request.caller)
  const target = await targetOf(deps, wanted)
  await commit(deps, actorOf(request), async (tx) => {
    await upsertPreview(tx, sessionId, target)
    const { userId: asUserId, roleId: asRoleId, tenantId } = target
    return {
      result: undefined,
      events: [{ type: 'auth.preview_started', data: { userId, asUserId, asRoleId, tenantId } }],
    }
  })
  return (await readPreview(deps, request))!
}

/** Ends the preview of the caller's session; nothing where there is none. */
async function stopPreview(deps: Writes, request: FastifyRequest): Promise<void> {
  const { sessionId, userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
    const stopped = await deletePreview(tx, sessionId)
    return { result: undefined, events: stopped ? [{ type: 'auth.preview_stopped', data: { userId } }] : [] }
  })
}

/** The preview of the caller's session. */
async function readPreview(deps: Reads & ReservedReads, request: FastifyRequest): Promise<PreviewState | undefined> {
  const { sessionId } = signedIn(request.caller)
  const row = await withoutWaiting(deps).maybeOne<{ state: PreviewState }>(
    rawQuery(
      `select json_build_object(
         'startedAt', to_char(p."startedAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
         'user', case when u.id is not null then json_build_object('id', u.id, 'email', u.email, 'firstName', u."firstName") end,
         'role', case when r.id is not null then json_build_object('id', r.id, 'name', r.name) end,
         'tenant', case when t.id is not null then json_build_object('id', t.id, 'name', t.name) end) as state
       from "svc_Preview" p
       left join "svc_User" u on u.id = p."user_Id"
       left join "svc_UserRole" ur on ur."user_Id" = u.id and ur."tenant_Id" is not distinct from p."tenant_Id"
       left join "svc_Role" r on r.id = coalesce(p."role_Id", ur."role_Id")
       left join "svc_Tenant" t on t.id = p."tenant_Id"
       where p."session_Id" = $1`,
      [sessionId],
    ),
  )
  return row?.state
}

async function targetOf(deps: PreviewReads, { user, role, tenant }: PreviewRequest): Promise<PreviewOf> {
  if ((user === undefined) === (role === undefined)) throw errors.badBody('Either user or role is required')
  const at = deps.config.tenancy.enabled ? tenant?.toLowerCase() : undefined
  if (at !== undefined && !isUuid(at)) throw new AppError(404, 'Tenant not found')
  if (user !== undefined) return userTarget(withoutWaiting(deps), user, at)
  const found = roleIn(await deps.access.knowing(role!), role!)
  if (found === undefined) throw new AppError(404, 'Role not found')
  if (at !== undefined && !(await tenantExists(withoutWaiting(deps), at))) throw new AppError(404, 'Tenant not found')
  return { userId: null, roleId: found.id, tenantId: at ?? null }
}

/** As the user would sign in: at the tenant, else where they have been for longest. */
async function userTarget(db: Reader, userId: string, tenant: string | undefined): Promise<PreviewOf> {
  const unknown = new AppError(404, 'User not found')
  if (!isUuid(userId)) throw unknown
  const found = await db.maybeOne<{ status: string; hasRole: boolean; tenantId: string | null }>(
    rawQuery(
      `select u.status, ur.id is not null as "hasRole", ur."tenant_Id" as "tenantId" from "svc_User" u
       left join "svc_UserRole" ur on ur."user_Id" = u.id and ($2::uuid is null or ur."tenant_Id" = $2::uuid)
       where u.id = $1 order by ur."createdAt", ur.id limit 1`,
      [userId, tenant ?? null],
    ),
  )
  if (found === undefined) throw unknown
  if (found.status !== 'active') throw errors.conflict(`Account is ${found.status}`)
  if (!found.hasRole)
    throw errors.conflict(
      tenant === undefined ? 'No role is assigned to this account' : 'The user is not at this tenant',
    )
  return { userId, roleId: null, tenantId: found.tenantId }
}

async function tenantExists(db: Reader, id: string): Promise<boolean> {
  return (await db.maybeOne(rawQuery(`select id from "svc_Tenant" where id = $1`, [id]))) !== undefined
}

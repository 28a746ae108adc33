import { Type } from '../../../adapters/typebox.ts'
import type { Collection, Field } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { AppError } from '../../../errors.ts'
import { type App, actorOf, sendJson } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { Anything, Count, IdParams, NullableId, NullableText, readAs, Text } from '../../../http/shapes.ts'
import { readableFields } from '../../../query/resolve.ts'
import {
  type Change,
  changeItems,
  ItemParams,
  inTransaction,
  queryOf,
  type Requester,
  readOne,
  readVersion,
  refuseMisfits,
  requesterOf,
  WrittenShape,
} from '../items/items.ts'
import {
  eraseItem,
  exportUser,
  type HistoryReads,
  type HistoryWrites,
  type ItemVersion,
  readEventVersion,
  readHistory,
  readNow,
  unheldFields,
} from './history.ts'

/** The history of items, and restore (docs/history.md). */
export function historyRoutes(app: App, deps: HistoryWrites): void {
  app.get('/history/now', nowRoute, () => readNow(deps))
  app.get('/items/:collection/:id/history', listRoute, async (request, reply) => {
    const { collection, id } = request.params
    const history = await readHistory(deps, request.caller.access, collection, id, queryOf(request))
    return sendJson(reply, history)
  })
  app.post('/items/:collection/:id/restore', restoreRoute, async (request, reply) => {
    const { collection, id } = request.params
    const restored = await restoreItem(deps, requesterOf(request), collection, id, request.body)
    return sendJson(reply, `{"data":{"id":${restored}}}`)
  })
}

export function historyAdminRoutes(app: App, deps: HistoryWrites): void {
  app.delete('/items/:collection/:id/history', eraseRoute, async (request) => {
    const { collection, id } = request.params
    return { data: { events: await eraseItem(deps, actorOf(request), collection, id) } }
  })
  app.get('/history/users/:id/export', exportUserRoute, async (request, reply) => {
    const lines = await exportUser(deps, request.params.id)
    return reply
      .type('application/x-ndjson; charset=utf-8')
      .header('content-disposition', 'attachment; filename="history.ndjson"')
      .send(lines)
  })
}

const declared = routesOf('History')

const nowRoute = declared({
  summary: 'Read a cursor of this moment',
  scope: 'read',
  response: {
    200: Type.Object({
      data: Type.Object({
        cursor: Text('eyJ4IjoxfQ'),
        time: Text('2026-03-14T09:26:53.589Z'),
        oldest: NullableText('2026-01-01T00:00:00.000Z', { description: 'The oldest moment that can be read.' }),
      }),
    }),
  },
})
const listRoute = declared({
  summary: 'Read what happened to an item',
  scope: 'read',
  description: 'The newest event first.',
  params: ItemParams,
  query: Type.Object({
    limit: Type.Optional(Count(25, { minimum: 1, maximum: 100 })),
    cursor: Type.Optional(Text('4711', { description: 'The `nextCursor` of the page before.' })),
  }),
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          id: Text('4711'),
          action: Text('update'),
          createdAt: Text('2026-03-14T09:26:53.589Z'),
          userId: NullableId(),
          requestId: NullableId({ description: 'The id for `POST /log/undo`.' }),
          agent: Anything({ name: 'claude-desktop', tool: 'items.update' }),
          cause: Anything({ request: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', depth: 1, by: 'hook' }),
          erased: Type.Boolean(),
          changes: Anything({ price: { before: 1200, after: 1100 } }),
        }),
      ),
      nextCursor: NullableText('4711'),
    }),
  },
  readElsewhere: 'all',
  sendsText: true,
})

type VersionValues = Readonly<Record<string, unknown>>

/** Which version: the one after or before one of the item's events, or that of a cursor or a time. */
const RestoreBody = Type.Union(
  [
    Type.Object({ event: Text('4711') }, { additionalProperties: false }),
    Type.Object({ before: Text('4711') }, { additionalProperties: false }),
    Type.Object({ asOf: Text('2026-03-14T09:26:53Z') }, { additionalProperties: false }),
  ],
  { refusal: 'Request body must be {event}, {before} or {asOf}' },
)

/**
 * `POST /items/{collection}/{id}/restore` with `{event}` or `{before}`, the id of one of the item's events, or `{asOf}`, a
 * cursor or a time: writes what differs from that version, as an ordinary update of the caller's, or creates an item that is gone
 * with its old id. Answers its id as JSON text. Fields that the caller may not read stay as they are, and so do those that are
 * younger than the version; a created item has their defaults. 400 for another
 * body and for a value that does not fit its field of today, 403 for a version that the caller may not see or a field that it may not write, 412 when another request writes the
 * item meanwhile.
 */
async function restoreItem(
  deps: HistoryWrites,
  requester: Requester,
  name: string,
  id: string,
  body: unknown,
): Promise<string> {
  const fields = restorable(deps, requester, name)
  const { values: version, younger, misfits } = await versionOf(deps, requester, name, id, body, fields)
  const held = fields.filter((field) => !younger.includes(field.name))
  refuseMisfits(held.map((field) => field.name).filter((field) => misfits.includes(field)))
  const present = await presentOf(deps, requester, name, id, fields)
  return write(deps, requester, name, changeBack(deps, name, id, { fields: held, version, present }), {
    version,
    present,
  })
}

type ComparedVersion = { readonly version: VersionValues; readonly present: Present | undefined }
type Present = { readonly values: VersionValues; readonly version: string }

/** The differences, as a change by the caller. */
function changeBack(
  { catalog }: CurrentCatalog,
  name: string,
  id: string,
  { fields, version, present }: ComparedVersion & { readonly fields: readonly Field[] },
): Change {
  if (present === undefined) {
    const { primaryKey } = catalog.current().collections.get(name)!
    return { action: 'create', payloads: [{ ...picked(version, fields), [primaryKey.name]: id }] }
  }
  const changed = fields.filter((field) => !same(version[field.name], present.values[field.name]))
  return { action: 'update', changes: [{ id, payload: picked(version, changed) }], ifMatch: [present.version] }
}

async function write(
  deps: HistoryWrites,
  requester: Requester,
  name: string,
  change: Change,
  { version, present }: ComparedVersion,
): Promise<string> {
  const restoring = await deps.systemRules.get(name)?.restores?.(deps, version, present?.values)
  if (restoring === undefined) return (await changeItems(deps, requester, name, change)).ids[0]!
  const platform = { collection: name, values: restoring.values }
  return inTransaction(deps, requester, async ({ tx, scope }) => {
    await restoring.during(tx)
    return (await changeItems(deps, { ...requester, platform, scope }, name, change)).ids[0]!
  })
}

async function versionOf(
  deps: HistoryReads,
  { access }: Requester,
  name: string,
  id: string,
  body: unknown,
  fields: readonly Field[],
): Promise<ItemVersion> {
  const wanted = readAs(RestoreBody, body)
  if ('event' in wanted) return readEventVersion(deps, access, name, id, wanted.event, 'after')
  if ('before' in wanted) return readEventVersion(deps, access, name, id, wanted.before, 'before')
  const { asOf } = wanted
  const values = dataOf(await readOne(deps, access, name, id, { ...asked(fields), asOf }))
  return { values, ...(await unheldFields(deps, name, id, asOf, fields)) }
}

/** Undefined for an item that is gone, and for one that is not the caller's to see: its id can't be taken then. */
async function presentOf(
  deps: HistoryReads,
  { access }: Requester,
  name: string,
  id: string,
  fields: readonly Field[],
) {
  try {
    const { body, version } = await readVersion(deps, access, name, id, asked(fields))
    return { values: dataOf(body), version: version! }
  } catch (error) {
    // Every other refusal came before: the version has been read with the same fields.
    if (error instanceof AppError && error.status === 403) return undefined
    throw error
  }
}

const asked = (fields: readonly Field[]) => ({ fields: fields.map(({ name }) => name), paranoid: 'false' })

const dataOf = (body: string): VersionValues => JSON.parse(body).data

const picked = (values: VersionValues, fields: readonly Field[]): VersionValues =>
  Object.fromEntries(fields.map(({ name }) => [name, values[name] ?? null]))

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a ?? null) === JSON.stringify(b ?? null)

/** The fields of a row that the caller sees and a request can set. */
function restorable(deps: CurrentCatalog, { access }: Requester, name: string): readonly Field[] {
  const catalog = deps.catalog.current()
  const readable = readableFields(catalog, access, name)
  const own = serversOwn(catalog.collections.get(name)!)
  return readable.filter(
    (field) => !field.primaryKey && !field.unlogged && field.generated === undefined && !own.has(field.name),
  )
}

const serversOwn = ({ timestamps, usertrack }: Pick<Collection, 'timestamps' | 'usertrack'>): ReadonlySet<string> =>
  new Set([
    ...(timestamps ? ['createdAt', 'updatedAt'] : []),
    ...(usertrack ? ['userCreated_Id', 'userUpdated_Id'] : []),
  ])

const restoreRoute = declared(
  {
    summary: 'Bring an item back to an earlier version',
    scope: 'write',
    params: ItemParams,
    body: RestoreBody,
    response: { 200: WrittenShape },
    // The permission to see the item is checked first.
    readElsewhere: 'all',
    sendsText: true,
  },
  { bodyLimit: 16_384 },
)
const eraseRoute = declared({
  summary: 'Erase the history of an item',
  scope: 'admin',
  description: 'The images of its events go; who did what and when stays, and so does the item.',
  params: ItemParams,
  response: { 200: Type.Object({ data: Type.Object({ events: Count(12) }) }) },
})
const exportUserRoute = declared({
  summary: 'Download everything that the log holds about a user',
  scope: 'admin',
  params: IdParams,
  response: { 200: Text('{"position":"4711"}', { contentMediaType: 'application/x-ndjson' }) },
  sendsText: true,
})

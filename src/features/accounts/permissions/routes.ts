import type { FastifyRequest } from 'fastify'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { withFreshCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { type App, actorOf, sendJson } from '../../../http/http.ts'
import { acceptJsonUploads, uploadedJson } from '../../../http/json-upload.ts'
import { type Change, changeItems, queryOf, readList, readOne, requesterOf } from '../../data/items/items.ts'
import { checkRule, checkRuleDelete } from './check.ts'
import {
  changeRoute,
  createRoute,
  explainMoreRoute,
  explainRoute,
  exportRoute,
  impactRoute,
  importRoute,
  listRoute,
  previewRoute,
  readRoute,
  reloadRoute,
  removeRoute,
  whoRoute,
} from './declarations.ts'
import { explain } from './explain.ts'
import { impactOf } from './impact.ts'
import type { PermissionReads, PermissionWrites } from './members.ts'
import { storedRow } from './queries.ts'
import { whoMay } from './review.ts'
import { exportPermissions, importPermissions, previewImport } from './transfer.ts'

type Row = Readonly<Record<string, unknown>>

/** Permissions and named rules are stored in collections of their own, and read like any other. */
const stores = [
  { path: '/permissions', collection: 'svc_Permission', what: 'Permission' },
  { path: '/acls', collection: 'svc_ACL', what: 'ACL' },
] as const

type Store = (typeof stores)[number]

/** Reading follows the ordinary read permission on the collection. */
export function permissionRoutes(app: App, deps: PermissionReads): void {
  for (const { path, collection, what } of stores) {
    app.get(path, listRoute(what), async (request, reply) =>
      sendJson(reply, await readList(deps, request.caller.access, collection, queryOf(request))),
    )
    app.get(`${path}/:id`, readRoute(what), async (request, reply) =>
      sendJson(reply, await readOne(deps, request.caller.access, collection, request.params.id, queryOf(request))),
    )
  }
}

/** Changes answer the raw row, not wrapped; they hold everywhere within a second, here at once. */
export function permissionAdminRoutes(app: App, deps: PermissionWrites): void {
  for (const store of stores) writeRoutes(app, deps, store)
  app.post('/permissions/reload', reloadRoute, async () => {
    await deps.access.reload()
    return { message: 'Permission cache reloaded successfully' }
  })
  app.get('/permissions/explain', explainRoute, (request) => explain(deps, request.query))
  app.post('/permissions/explain', explainMoreRoute, ({ body: { id, ...question } }) =>
    explain(deps, { ...question, ...(id !== undefined && { id: String(id) }) }),
  )
  app.post('/permissions/who', whoRoute, async ({ body }) => ({ data: await whoMay(deps, body) }))
  app.post('/permissions/impact', impactRoute, async ({ body }) => ({ data: await impactOf(deps, body) }))
  app.get('/permissions-export', exportRoute, async (_request, reply) => {
    const file = await exportPermissions(deps)
    const name = `permissions-${file.timestamp.slice(0, 10)}.json`
    return reply.header('content-disposition', `attachment; filename="${name}"`).send(file)
  })
  app.register(async (scope) => {
    acceptJsonUploads(scope as App, deps.config)
    scope.post('/permissions-preview-import', previewRoute, async (request) =>
      previewImport(deps, await uploaded(request)),
    )
    scope.post('/permissions-import', importRoute, async (request) =>
      importPermissions(deps, actorOf(request), await uploaded(request)),
    )
  })
}

function uploaded(request: FastifyRequest): Promise<unknown> {
  return uploadedJson(request, 'rolesPermissions', 'No roles & permissions file uploaded')
}

function writeRoutes(app: App, deps: PermissionWrites, store: Store): void {
  const { path, collection, what } = store
  // By itself: what follows it must not have it done again.
  const change = (request: FastifyRequest, wanted: Change) =>
    withFreshCatalog(deps.catalog, () => changeItems(deps, requesterOf(request), collection, wanted))
  app.post(path, createRoute(what), async (request, reply) => {
    const row = request.body
    await checkRule(deps, collection, row)
    const { ids } = await change(request, { action: 'create', payloads: [row] })
    const id = ids[0]!
    await deps.access.reload()
    return reply.code(201).send(await stored(deps, store, JSON.parse(id)))
  })
  app.patch(`${path}/:id`, changeRoute(what), async (request) => {
    const { id } = request.params
    const changes = request.body
    await stored(deps, store, id)
    await checkRule(deps, collection, changes, id)
    await change(request, { action: 'update', changes: [{ id, payload: changes }] })
    await deps.access.reload()
    return stored(deps, store, id)
  })
  app.delete(`${path}/:id`, removeRoute(what), async (request, reply) => {
    const { id } = request.params
    await checkRuleDelete(deps, collection, [id])
    await change(request, { action: 'delete', ids: [id] })
    await deps.access.reload()
    return reply.code(204).send()
  })
}

async function stored({ db, catalog }: Reads & CurrentCatalog, { collection, what }: Store, id: string): Promise<Row> {
  const row = await storedRow(db, catalog.current(), collection, id)
  if (row === undefined) throw new AppError(404, `${what} not found`)
  return row
}

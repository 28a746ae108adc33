import type { FastifyRequest } from 'fastify'
import type { Caller } from '../access/principal.ts'
import type { Catalog } from '../catalog/catalog.ts'
import type { CurrentCatalog } from '../catalog/store.ts'
import { AppError } from '../errors.ts'
import type { LoadedConsole } from '../extensions/extensions.ts'
import type { App } from '../http/http.ts'
import { oncePer } from '../language/once.ts'
import { type Access, type Grant, withGrants } from '../query/access.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The extension of the console that the request is made for: it opens what both it and the caller may. */
    consoleExtension: LoadedConsole | undefined
  }
}

/** Routes that the console uses for an extension. A request that names an extension opens no others. */
const routes: ReadonlySet<string> = new Set([
  'GET /items/:collection',
  'POST /items/:collection',
  'GET /items/:collection/:id',
  'PATCH /items/:collection/:id',
  'DELETE /items/:collection/:id',
  'POST /reports/:collection',
])

/**
 * Reads the header `x-svc-console-extension` of every request, before anybody looks for the caller. 400 for an extension that
 * there is not, 403 `NOT_FOR_EXTENSIONS` for a route that none may have called.
 */
export function knowExtensions(app: App, consoles: readonly LoadedConsole[]): void {
  const byId = new Map(consoles.map((one) => [one.id, one]))
  app.decorateRequest('consoleExtension', undefined)
  app.addHook('onRequest', (request, _reply, done) => {
    const name = request.headers['x-svc-console-extension']
    if (name === undefined) return done()
    const extension = byId.get(String(name))
    if (extension === undefined) return done(new AppError(400, 'There is no such extension of the console'))
    const { method, routeOptions } = request
    if (!routes.has(`${method} ${routeOptions.url}`))
      return done(new AppError(403, 'Extensions of the console may not do this', { code: 'NOT_FOR_EXTENSIONS' }))
    request.consoleExtension = extension
    request.agent = { name: 'console extension', tool: extension.id }
    done()
  })
}

/** The caller with the rights that the extension of the request has, too: never more than either of both. */
export function narrowed({ catalog }: CurrentCatalog, { consoleExtension }: FastifyRequest, caller: Caller): Caller {
  if (consoleExtension === undefined) return caller
  if (!maySee(consoleExtension, caller))
    throw new AppError(403, 'This extension of the console is not for you', { code: 'NOT_FOR_EXTENSIONS' })
  return { ...caller, admin: false, access: narrowedAccess(catalog.current(), consoleExtension, caller.access) }
}

/** Whether a caller sees an extension of the console at all. */
export const maySee = ({ definition: { roles } }: LoadedConsole, { admin, role }: Caller): boolean =>
  roles === undefined || admin || roles.includes(role.name)

function narrowedAccess(catalog: Catalog, { definition }: LoadedConsole, access: Access): Access {
  const { read = [], write = [] } = definition.collections ?? {}
  const grant: Access['grant'] = (collection, action) => {
    if (!(action === 'read' ? read : write).includes(collection)) return undefined
    return access.admin ? everything : access.grant(collection, action)
  }
  // Naming a relation in a grant opens no collection that the extension does not name itself.
  const closed = new Set([...(access.closed ?? []), ...undeclared(catalog)(definition)])
  return { ...withGrants(access, grant, { admin: false }), closed }
}

const undeclared = oncePer((catalog: Catalog) =>
  oncePer((definition: LoadedConsole['definition']): readonly string[] =>
    [...catalog.collections.keys()].filter((name) => definition.collections?.read?.includes(name) !== true),
  ),
)

/** The rights of administrators, as a grant; relations lead only to collections with a grant of their own. */
const everything: Grant = {
  fields: ['*', '*.*', '*.*.*', '*.*.*.*', '*.*.*.*.*'],
  conditions: null,
  relConditions: null,
  defaultValues: null,
}

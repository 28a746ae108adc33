import packageJson from '../../../../package.json' with { type: 'json' }
import { accessOfRole, type Caller, type SettingsInForce } from '../../../access/principal.ts'
import type { AccessRules } from '../../../access/store.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import type { Config } from '../../../config/config.ts'
import type { AccessClass, DeclaredRoute } from '../../../http/route.ts'
import { RealtimeError } from '../../../http/shapes.ts'
import { oncePer } from '../../../language/once.ts'
import { type ItemReads, type Rights, rightsOf } from '../../data/items/items.ts'
import { type CollectionView, collectionSchemas, componentRef, type Json, standIn } from './collections.ts'
import { type KeptText, keptText } from './kept-text.ts'
import { operationOf, pathOf, refusalResponses, refusalSchemas, securitySchemes } from './operation.ts'

export { schemaOf } from './collections.ts'

/** How somebody comes to the API: by nothing, by a key, by a session; administrators by one of the latter. */
export type CallerKind = {
  readonly by: 'nothing' | 'key' | 'session'
  readonly admin: boolean
}

type DescriptionSource = {
  readonly routes: readonly DeclaredRoute[]
  readonly catalog: Catalog
  readonly callerKind: CallerKind
  readonly rightsOf: (collection: Collection) => Rights
  readonly config: Pick<Config, 'openapi' | 'access' | 'server' | 'project'>
}

/** Routes of the platform whose variable is off. */
type HiddenFamily = { readonly name: string; readonly variable: string }

/**
 * The OpenAPI 3.1 description of what a caller can reach: every collection that it may read or change with the fields that
 * it may, and every family of routes that the configuration includes. The same input gives the same text.
 */
export function describeApi(source: DescriptionSource): Json {
  const { config, routes, callerKind } = source
  const described = describedCollections(source)
  const parameters = sharedParameters()
  const reachable = routes.filter((route) => isReachable(route, callerKind) && isDescribed(route, config))
  const paths = new Map<string, Json>()
  const add = (path: string, method: string, operation: Json) => {
    paths.set(path, { ...paths.get(path), [method.toLowerCase()]: operation })
  }
  const ids = operationIds(routes)
  for (const one of described)
    for (const route of reachable.filter((route) => isOfItems(route) && opens(route, one))) {
      const { name } = one.collection
      const operationId = `${ids.get(route)}.${name}`
      const place = { operationId, tag: name, collection: { name, stand: standIn(one) }, share: parameters.share }
      add(pathOf(route.url, name), route.method, operationOf(route, place))
    }
  for (const route of reachable.filter((route) => !isOfItems(route))) {
    const place = { operationId: ids.get(route)!, tag: tagOf(route), share: (parameter: Json) => parameter }
    add(pathOf(route.url), route.method, operationOf(route, place))
  }
  const readable = new Set(described.filter(({ rights }) => rights.read).map(({ collection }) => collection.name))
  const schemas = described.map((one) => collectionSchemas(source.catalog, one, readable))
  return {
    openapi: '3.1.0',
    info: { title: config.project.name, version: packageJson.version, description: introduction },
    servers: [{ url: config.server.baseUrl ?? '/' }],
    tags: tagsOf(described, reachable),
    paths: Object.fromEntries(paths),
    components: {
      schemas: { ...Object.assign({}, ...schemas), ...refusalSchemas(RealtimeError) },
      parameters: parameters.components(),
      responses: refusalResponses(),
      securitySchemes,
    },
    'x-hidden-families': hiddenFamilies(config),
  }
}

const introduction =
  'This document shows the operations that the caller of `GET /openapi` may call: sign in to see more. Lists, filters and nested fields: ' +
  'the parameters of `GET /items/{collection}`. Times are UTC.'

/* Families. */

type TagFamily = 'Auth' | 'Schema' | 'Permissions' | 'Settings' | 'Notifications' | 'MultiTenant' | 'Utils'

const variables: Readonly<Record<TagFamily, string>> = {
  Auth: 'OPENAPI_INCLUDE_AUTH',
  Schema: 'OPENAPI_INCLUDE_SCHEMA',
  Permissions: 'OPENAPI_INCLUDE_PERMISSIONS',
  Settings: 'OPENAPI_INCLUDE_SETTINGS',
  Notifications: 'OPENAPI_INCLUDE_NOTIFICATIONS',
  MultiTenant: 'OPENAPI_INCLUDE_MULTI_TENANT',
  Utils: 'OPENAPI_INCLUDE_UTILS',
}

/** The family of the routes of a tag; those of all other tags are always described. */
const familyOfTag: Readonly<Record<string, TagFamily>> = {
  'Signing in': 'Auth',
  Account: 'Auth',
  Sessions: 'Auth',
  Passkeys: 'Auth',
  'Two-factor': 'Auth',
  'API keys': 'Auth',
  OAuth: 'Auth',
  Schemas: 'Schema',
  Migrations: 'Schema',
  Permissions: 'Permissions',
  Settings: 'Settings',
  Templates: 'Settings',
  Notifications: 'Notifications',
  Tenants: 'MultiTenant',
  Realtime: 'Utils',
  Operations: 'Utils',
  Development: 'Utils',
}

function isDescribed(route: DeclaredRoute, { openapi }: Pick<Config, 'openapi'>): boolean {
  const { endpoint, summary, params, querystring, body, response } = route
  if (endpoint !== undefined) return [summary, params, querystring, body, response].some((part) => part !== undefined)
  if (summary === undefined) return false
  // Manual sorting is a utility by its path, but concerns items.
  const family = familyOfTag[tagOf(route)]
  return family === undefined || openapi[`include${family}`]
}

function hiddenFamilies({ openapi }: Pick<Config, 'openapi'>): readonly HiddenFamily[] {
  return (Object.keys(variables) as TagFamily[])
    .filter((family) => !openapi[`include${family}`])
    .map((family) => ({ name: tagsOfFamily(family).join(', '), variable: variables[family] }))
}

const tagsOfFamily = (family: TagFamily): string[] =>
  Object.keys(familyOfTag).filter((tag) => familyOfTag[tag] === family)

const tagOf = ({ tags, endpoint }: DeclaredRoute): string => tags?.[0] ?? endpoint ?? 'Other'

function tagsOf(described: readonly CollectionView[], reachable: readonly DeclaredRoute[]): Json[] {
  const names = reachable.filter((route) => !isOfItems(route)).map(tagOf)
  const collections = described.map(({ collection }) => ({ name: collection.name, description: about(collection) }))
  return [...collections, ...[...new Set(names)].map((name) => ({ name }))]
}

function about({ definition, system }: Collection): string {
  const { description } = definition.schema
  if (typeof description === 'string') return description
  return system ? 'A collection of the platform.' : 'A collection.'
}

/* The routes that a caller can reach. */

const callerKinds: Readonly<Record<AccessClass, (callerKind: CallerKind) => boolean>> = {
  public: () => true,
  bearer: ({ by }) => by !== 'nothing',
  session: ({ by }) => by === 'session',
  leaving: ({ by }) => by === 'session',
  admin: ({ admin }) => admin,
  'admin session': ({ admin, by }) => admin && by === 'session',
}

const isReachable = ({ access }: DeclaredRoute, callerKind: CallerKind): boolean => callerKinds[access](callerKind)

/** Collections by name, the installation's own first; none of them for strangers where definitions are not public. */
function describedCollections({ catalog, callerKind, config, rightsOf }: DescriptionSource): readonly CollectionView[] {
  if (callerKind.by === 'nothing' && !config.access.schemasPublic) return []
  const order = (a: Collection, b: Collection) =>
    Number(a.system) - Number(b.system) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)
  return [...catalog.collections.values()]
    .sort(order)
    .map((collection) => ({ collection, rights: rightsOf(collection) }))
    .filter(({ rights }) => rights.read || rights.create || rights.update || rights.delete)
}

/** Routes that are described once per collection. */
const isOfItems = ({ url, endpoint }: DeclaredRoute): boolean =>
  endpoint === undefined && /^\/(items|reports|utils)\/.*:collection(\/|$)/.test(url)

/** Whether the rights over a collection open a route of items. */
function opens({ method, url }: DeclaredRoute, { collection, rights }: CollectionView): boolean {
  if (method === 'GET' || url.startsWith('/reports/') || url.endsWith('/history')) return rights.read !== undefined
  if (url.startsWith('/utils/')) return collection.sortEnabled && rights.update !== undefined
  if (method === 'DELETE') return rights.delete
  if (method === 'PATCH') return rights.update !== undefined
  if (url.endsWith('/:id/restore')) return rights.update !== undefined || rights.create !== undefined
  return method === 'PUT' ? (rights.create ?? rights.update) !== undefined : rights.create !== undefined
}

/* Names. */

/** `GET /items/:collection/:id` becomes `getItemsById`; equal names are counted in the order of the routes. */
function operationIds(routes: readonly DeclaredRoute[]): ReadonlyMap<DeclaredRoute, string> {
  const taken = new Map<string, number>()
  const ids = new Map<DeclaredRoute, string>()
  for (const route of routes) {
    const words = route.url.replace(/:collection\b/, '').split(/[^\w:]+/)
    const name = [route.method.toLowerCase(), ...words.map((word) => capital(word.replace(/^:/, 'by-')))].join('')
    const count = (taken.get(name) ?? 0) + 1
    taken.set(name, count)
    ids.set(route, count === 1 ? name : `${name}${count}`)
  }
  return ids
}

const capital = (text: string): string =>
  text
    .split('-')
    .map((word) => word.slice(0, 1).toUpperCase() + word.slice(1))
    .join('')

/** Parameters of the same content are one component; the first has their name. */
function sharedParameters() {
  const names = new Map<string, string>()
  const components: Record<string, Json> = {}
  const nameOf = (parameter: Json): string => {
    const text = JSON.stringify(parameter)
    const known = names.get(text)
    if (known !== undefined) return known
    const same = Object.keys(components).filter((other) => other.replace(/\.\d+$/, '') === parameter.name).length
    const name = same === 0 ? String(parameter.name) : `${parameter.name}.${same + 1}`
    names.set(text, name)
    components[name] = parameter
    return name
  }
  return {
    components: () => components,
    share: oncePer((parameter: Json) => componentRef('parameters', nameOf(parameter))),
  }
}

/** The capabilities to make a description. */
export type DescriptionReads = ItemReads & SettingsInForce

/** The description for a caller, kept for as long as collections, rules and routes are what they are. */
export function descriptionFor(deps: DescriptionReads, caller: Caller, routes: readonly DeclaredRoute[]): KeptText {
  const [catalog, rules] = [deps.catalog.current(), deps.access.current()]
  const kept = keptFor(routes)(catalog)(rules)
  const callerKind = callerKindOf(caller)
  const key = JSON.stringify([caller.role.id, callerKind, caller.tenantId !== undefined])
  const known = kept.get(key)
  if (known !== undefined) return known
  const made = keptText(Buffer.from(JSON.stringify(describe(deps, caller, { routes, catalog, rules, callerKind }))))
  kept.set(key, made, keptForMs)
  return made
}

/** Two hundred collections take seven megabytes for an administrator. */
const mostBytes = 32 * 1024 * 1024
const keptForMs = 3_600_000

/** By role and by what else the description depends on. */
const keptFor = oncePer((_routes: readonly DeclaredRoute[]) =>
  oncePer((_catalog: Catalog) =>
    oncePer((_rules: AccessRules) =>
      openBoundedMemory<KeptText>({
        maxBytes: mostBytes,
        maxEntryBytes: mostBytes,
        sizeOf: ({ plain }) => plain.length,
      }),
    ),
  ),
)

const callerKindOf = ({ keyId, client, userId, admin }: Caller): CallerKind => ({
  by: userId === undefined ? 'nothing' : keyId === undefined && client === undefined ? 'session' : 'key',
  admin,
})

type Current = {
  readonly routes: readonly DeclaredRoute[]
  readonly catalog: Catalog
  readonly rules: AccessRules
  readonly callerKind: CallerKind
}

/** By the present rights of the role, for all who have it: the caller's own access may be a moment older than the rules. */
function describe(deps: DescriptionReads, { role, tenantId }: Caller, { routes, catalog, rules, callerKind }: Current) {
  const access = { ...accessOfRole(deps, rules, role, tenantId), byKey: callerKind.by === 'key' }
  return describeApi({
    routes,
    catalog,
    callerKind,
    rightsOf: (collection) => rightsOf(deps, access, collection),
    config: deps.config,
  })
}

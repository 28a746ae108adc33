import type { TSchema } from 'typebox'
import packageJson from '../../../../package.json' with { type: 'json' }
import { accessOfRole, type Caller, type SettingsInForce } from '../../../access/principal.ts'
import type { AccessRules } from '../../../access/store.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import type { Config } from '../../../config/config.ts'
import { type AccessClass, chapters, type DeclaredRoute, type Tag } from '../../../http/route.ts'
import { AuthError, GeneralError, OAuthError, RealtimeError } from '../../../http/shapes.ts'
import { STATUS_CODES } from '../../../language/node-http.ts'
import { oncePer } from '../../../language/once.ts'
import { type ItemReads, type Rights, rightsOf } from '../../data/items/items.ts'
import {
  type CollectionView,
  collectionSchemas,
  componentRef,
  type Json,
  type Stand,
  schemaOf,
  standIn,
} from './collections.ts'
import { type KeptText, keptText } from './kept-text.ts'

export { schemaOf } from './collections.ts'

/** How a caller comes to the API: without a credential, by a key, by a session; administrators by one of the latter. */
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
  const operations = Object.fromEntries(paths)
  const all = {
    schemas: { ...Object.assign({}, ...schemas), ...refusalSchemas(RealtimeError) },
    parameters: parameters.components(),
    responses: refusalResponses(),
  }
  const { name: title } = config.project
  return {
    openapi: '3.1.0',
    info: { title, version: packageJson.version, description: introduction },
    servers: [{ url: config.server.baseUrl ?? '/' }],
    tags: tagsOf(described, reachable),
    paths: operations,
    components: { ...named(operations, all), securitySchemes },
    'x-hidden-families': hiddenFamilies(config),
  }
}

type Components = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** The components that the operations name, or that one of these names, in the order that they have. */
function named(operations: Json, all: Components): Json {
  const known = new Set<string>()
  const collect = (value: unknown) => {
    for (const [, kind, name] of JSON.stringify(value).matchAll(/"\$ref":"#\/components\/([^/"]+)\/([^"]+)"/g)) {
      const key = `${kind}/${name}`
      if (known.has(key)) continue
      known.add(key)
      collect(all[kind!]?.[name!] ?? null)
    }
  }
  collect(operations)
  const kept = Object.entries(all).map(([kind, components]) => [
    kind,
    Object.fromEntries(Object.entries(components).filter(([name]) => known.has(`${kind}/${name}`))),
  ])
  return Object.fromEntries(kept)
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
  return [...collections, ...[...new Set(names)].map((name) => ({ name, description: chapterOf(name) }))]
}

/** The routes of an extension stand under the name of their endpoint. */
const chapterOf = (tag: string): string =>
  tag in chapters ? chapters[tag as Tag] : 'Routes of an extension of this installation.'

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

/** Where a route is described: as it is, or for one collection. */
type OperationContext = {
  readonly operationId: string
  readonly tag: string
  /** The collection that stands for the parameter of the path, and its rows in the shapes. */
  readonly collection?: { readonly name: string; readonly stand: Stand }
  /** Gives a parameter that many operations share a name among the components. */
  readonly share: (parameter: Json) => Json
}

/** `/items/:collection/:id` as the document writes it. */
export function pathOf(url: string, collection?: string): string {
  const path = url.replace(/:collection\b/, (whole) => collection ?? whole)
  const named = path.replaceAll(/:(\w+)(\([^)]*\))?/g, '{$1}').replaceAll('*', '{path}')
  return named.length > 1 ? named.replace(/\/$/, '') : named
}

/** The operation of one method of a path. */
function operationOf(route: DeclaredRoute, place: OperationContext): Json {
  const { operationId, tag, collection } = place
  const { body, description, summary, endpoint } = route
  const title = summary ?? (endpoint === undefined ? undefined : `A route of the extension ${endpoint}`)
  const parameters = parametersOf(route, place)
  return {
    operationId,
    tags: [tag],
    ...(title !== undefined && { summary: title }),
    ...(description !== undefined && { description }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && { requestBody: requestOf(body, collection?.stand) }),
    responses: responsesOf(route, collection?.stand),
    security: securityOf(route),
  }
}

function parametersOf(route: DeclaredRoute, { collection, share }: OperationContext): Json[] {
  const { params, querystring, method, url, endpoint } = route
  const inPath = [...url.matchAll(/:(\w+)|(\*)/g)].map(([, name]) => name ?? 'path')
  const declared = membersOf(params, collection?.stand)
  const named = inPath
    .filter((name) => name !== 'collection' || collection === undefined)
    .map((name) => {
      // The key of an item has the type of its collection.
      const isKey = name === 'id' && collection !== undefined
      const schema = isKey ? collection.stand('key') : (declared.get(name)?.schema ?? { type: 'string' })
      return parameter('path', name, { schema, isRequired: true })
    })
  // Only the platform takes lists apart by commas.
  const asked =
    querystring === undefined ? [] : (endpoint === undefined ? splitParameters : plainParameters)(querystring)
  const isWriting = method !== 'GET' && !url.startsWith('/auth/')
  return [...named, ...asked.map(share), ...(isWriting ? [share(idempotencyKey)] : [])]
}

/** No query string speaks of rows, so they are the same for every collection. */
const splitParameters = oncePer((querystring: TSchema): readonly Json[] =>
  plainParameters(querystring).map((asked) =>
    // Repeated names are understood as well.
    (asked.schema as Json).type === 'array' ? { ...asked, style: 'form', explode: false } : asked,
  ),
)

const plainParameters = oncePer((querystring: TSchema): readonly Json[] =>
  [...membersOf(querystring, undefined)].map(([name, member]) => parameter('query', name, member)),
)

const idempotencyKey: Json = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  description: 'The same request with the same key is done once within 24 hours.',
  schema: { type: 'string', minLength: 1, maxLength: 255 },
}

type BodyMember = { readonly schema: Json; readonly isRequired: boolean }

function membersOf(shape: TSchema | undefined, stand: Stand | undefined): ReadonlyMap<string, BodyMember> {
  const { properties = {}, required = [] } = shape === undefined ? {} : schemaOf(shape, stand)
  const needed = new Set(required as readonly string[])
  return new Map(
    Object.entries(properties as Record<string, Json>).map(([name, schema]) => [
      name,
      { schema, isRequired: needed.has(name) },
    ]),
  )
}

function parameter(place: 'path' | 'query', name: string, { schema, isRequired }: BodyMember): Json {
  const { description, ...rest } = schema
  return {
    name,
    in: place,
    required: isRequired,
    ...(description !== undefined && { description }),
    schema: rest,
  }
}

function requestOf(body: TSchema, stand: Stand | undefined): Json {
  const { contentMediaType = 'application/json', ...schema } = schemaOf(body, stand)
  const isNeeded = !('properties' in schema) || (schema.required !== undefined && (schema.required as []).length > 0)
  return { required: isNeeded, content: { [contentMediaType as string]: { schema } } }
}

function responsesOf(route: DeclaredRoute, stand: Stand | undefined): Json {
  const responses: Json = {}
  for (const [status, shape] of Object.entries(route.response ?? {})) {
    if (status === '4xx') continue
    responses[status.toUpperCase().replace('DEFAULT', 'default')] = isKnownRefusal(status, shape)
      ? componentRef('responses', `general.${status}`)
      : answerOf(status, shape, stand)
  }
  // What an extension declares need not be all; a route of ours that declares no success has none.
  if (route.endpoint !== undefined && !Object.keys(responses).some((status) => /^[23]/.test(status)))
    responses['2XX'] = { description: 'Done' }
  return { ...refusalsOf(route), ...responses }
}

const isKnownRefusal = (status: string, shape: TSchema): boolean =>
  shape === GeneralError && Object.hasOwn(meanings, status)

function answerOf(status: string, shape: TSchema, stand: Stand | undefined): Json {
  const schema = schemaOf(shape, stand)
  const { contentMediaType = 'application/json', description, content, ...rest } = schema
  const words = typeof description === 'string' ? description : (STATUS_CODES[status] ?? 'An answer')
  // An answer may be declared by type of content.
  if (content !== undefined && typeof content === 'object')
    return { description: words, content: contentOf(content, stand) }
  if (rest.type === 'null') return { description: words }
  return { description: words, content: { [contentMediaType as string]: { schema: rest } } }
}

function contentOf(content: object | null, stand: Stand | undefined): Json {
  const types = Object.entries((content ?? {}) as Record<string, { schema?: TSchema }>)
  return Object.fromEntries(
    types.map(([type, { schema }]) => [type, schema === undefined ? {} : { schema: schemaOf(schema, stand) }]),
  )
}

/* Refusals. */

type Style = 'general' | 'auth' | 'realtime' | 'oauth'

function styleOf({ response }: DeclaredRoute): Style {
  const refusal = response?.['4xx']
  if (refusal === undefined || refusal === GeneralError) return 'general'
  if (refusal === OAuthError) return 'oauth'
  return refusal === AuthError ? 'auth' : 'realtime'
}

/** By status; for rarer ones (410, 412, 415, 422, 503 …) the ranges stand. */
const refusalsOf = oncePer((route: DeclaredRoute): Json => {
  const style = styleOf(route)
  return Object.fromEntries(
    refusalStatusesOf(route).map((status) => [status, componentRef('responses', `${style}.${status}`)]),
  )
})

function refusalStatusesOf({ method, url, access, body }: DeclaredRoute): readonly string[] {
  const isOpen = access === 'public' && !/^\/(items|reports|files|assets)(\/|$)/.test(url)
  return [
    '400',
    '401',
    ...(isOpen ? [] : ['403']),
    ...(/[:*]/.test(url) ? ['404'] : []),
    ...(method === 'GET' ? [] : ['409']),
    ...(body === undefined ? [] : ['413']),
    '429',
    '4XX',
    '5XX',
  ]
}

const meanings: Readonly<Record<string, string>> = {
  400: 'The request is not valid; `details` says what of it.',
  401: 'A credential is missing, or opens nothing.',
  403: 'The caller may not do this.',
  404: 'There is no such thing, or the caller may not see it.',
  409: 'It contradicts what is stored, or another request with the same Idempotency-Key.',
  413: 'The body is too large.',
  429: 'Too many requests; `Retry-After` says when to come back.',
  '4XX':
    'Another refusal: 410 for what is gone, 412 for an item that has changed, 415 and 422 for a body that is not taken.',
  '5XX':
    'The server cannot do it: 500 with the reference that is in its log, or 503 with `Retry-After`, where it may be tried again.',
}

const styles: readonly Style[] = ['general', 'auth', 'realtime', 'oauth']

/** The refusals that operations refer to, by style and status. */
function refusalResponses(): Json {
  const entries = styles.flatMap((style) =>
    Object.entries(meanings).map(([status, description]) => [
      `${style}.${status}`,
      { description, content: { 'application/json': { schema: refusalSchema(style, status) } } },
    ]),
  )
  return Object.fromEntries(entries)
}

/** The shapes of refusals, as components. */
function refusalSchemas(realtime: TSchema): Json {
  return {
    'error.general': schemaOf(GeneralError),
    'error.auth': schemaOf(AuthError),
    'error.realtime': schemaOf(realtime),
    'error.oauth': schemaOf(OAuthError),
  }
}

/** Only what is not valid is refused in realtime's own words. */
function refusalSchema(style: Style, status: string): Json {
  const own = componentRef('schemas', `error.${style}`)
  const general = componentRef('schemas', 'error.general')
  return style === 'realtime' && (status === '400' || status === '4XX')
    ? { anyOf: [general, own] }
    : style === 'realtime'
      ? general
      : own
}

/* The callers of a route. */

const securitySchemes: Json = {
  token: {
    type: 'http',
    scheme: 'bearer',
    description: 'The `token` of `POST /auth/login`, or an API key where the operation takes one.',
  },
}

/** Without a credential where anybody may call. */
function securityOf({ access }: DeclaredRoute): Json[] {
  return access === 'public' ? [{}, { token: [] }] : [{ token: [] }]
}

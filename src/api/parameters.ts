import type { FastifyRequest, HookHandlerDoneFunction, RouteOptions } from 'fastify'
import type { TSchema } from 'typebox'
import { hooksOf } from '../adapters/fastify.ts'
import { AppError, errors } from '../errors.ts'
import type { App } from '../http/http.ts'
import { isClosed } from '../http/shapes.ts'
import { nearName } from '../language/text.ts'
import { quoted } from '../query/guards.ts'
import { readListParameters } from '../query/parse.ts'

/**
 * Parameters that every route of data takes, if only to ignore them: those of a list, and what clients send along wherever
 * they are. An unknown name would be taken for a filter, and every row for its result.
 */
const ofClients = [
  'meta',
  'editMode',
  'full',
  'tenant',
  'tenant_id',
  'tenant_Id',
  'app_url',
  'access_token',
  'authMode',
  'authType',
]
const more = ['cache', 'notificationIds', 'inviteToken', 'redirect_url', 'scopes']
const common = [...readListParameters, ...more, ...ofClients]
const ofAll: ReadonlySet<string> = new Set(common)

/** Parameters that may be repeated, as one of the spellings of a list. */
const lists: ReadonlySet<string> = new Set([
  'fields',
  'sort',
  'searchFields',
  'groupBy',
  'collections',
  'key',
  'meta',
  'stats',
])

/** Parameters that brackets take apart, and those of clients that are ignored in any spelling. */
const inBrackets: ReadonlySet<string> = new Set([
  ...[...lists, ...more, ...ofClients],
  ...['filter', 'aggregate', 'having', 'relConditions'],
])

/** The names that other programs have for them. */
const synonyms: ReadonlyMap<string, string> = new Map(
  Object.entries({
    filter: ['where', 'condition', 'conditions', 'criteria', 'query'],
    fields: ['select', 'columns', 'attributes', 'include', 'populate', 'expand', 'projection'],
    sort: ['order', 'orderBy', 'order_by', 'sortBy', 'sort_by', 'ordering'],
    limit: ['take', 'top', 'first', 'size', 'per_page', 'perPage', 'pageSize', 'page_size'],
    offset: ['skip', 'start'],
    cursor: ['after', 'nextCursor', 'continuation'],
    search: ['q'],
    groupBy: ['group', 'group_by'],
    asOf: ['as_of'],
  }).flatMap(([meant, names]) => names.map((name) => [name.toLowerCase(), meant] as const)),
)

/** Looks at the query string of every route of data in this scope. */
export function checkParameters(scope: App): void {
  scope.addHook('onRoute', (route) => {
    if (!isOfData(route.url)) return refuseMisplaced(route)
    const own = ownParameters(route)
    // A list parameter that these routes do not have would be ignored, and the answer would hold what was to be left out.
    const known = new Set([...(isOfLog(route.url) ? ofClients : common), ...own])
    const declared = Object.keys(propertiesOf(route.schema?.querystring))
    // Known everywhere, the parameters of lists have an effect on lists alone.
    const hinted = declared.includes('filter') ? known : new Set(declared)
    const isAskedByBody =
      isReport(route.url) && (route.schema as { readonly body?: TSchema } | undefined)?.body !== undefined
    const check = (request: FastifyRequest, _reply: unknown, done: HookHandlerDoneFunction) => {
      if (isAskedByBody) refuseOfBody(Object.keys(request.query as object))
      refuseUnknown(request.query as Readonly<Record<string, unknown>>, { known, hinted, own })
      done()
    }
    route.preValidation = [check, ...hooksOf(route.preValidation)]
  })
}

/**
 * A route that acts on everything unless its body says otherwise must not ignore what the query says of it. 400 for a member of
 * the body there.
 */
function refuseMisplaced(route: RouteOptions): void {
  const { body, querystring } = (route.schema ?? {}) as { readonly body?: TSchema; readonly querystring?: TSchema }
  if (body === undefined || !isClosed(body)) return
  const declared = propertiesOf(querystring)
  const members = Object.keys(propertiesOf(body)).filter((name) => !Object.hasOwn(declared, name))
  const check = (request: FastifyRequest, _reply: unknown, done: HookHandlerDoneFunction) => {
    const misplaced = members.find((name) => Object.hasOwn(request.query as object, name))
    done(misplaced === undefined ? undefined : errors.badQuery(`${misplaced}: is a member of the body`))
  }
  route.preValidation = [check, ...hooksOf(route.preValidation)]
}

const isReport = (url: string): boolean => url.startsWith('/reports/')

/** A report by POST reads its question from the body alone: a filter or a moment beside it would be ignored. */
function refuseOfBody(keys: readonly string[]): void {
  const misplaced = keys.map(nameOf).find((name) => readListParameters.includes(name))
  if (misplaced !== undefined) throw errors.badQuery(`${misplaced}: is a member of the body`)
}

const propertiesOf = (shape: unknown): object =>
  (shape as { readonly properties?: object } | undefined)?.properties ?? {}

/** The parameters that a route declares beyond those that every route of data takes. */
export function ownParameters({ schema, url }: Pick<RouteOptions, 'schema' | 'url'>): readonly string[] {
  return Object.keys(propertiesOf(schema?.querystring)).filter((name) => !ofAll.has(name) || isOfLog(url))
}

/** Mailed links, callbacks, assets and the routes of extensions have parameters of others, too. */
export const isOfData = (url: string): boolean =>
  /^\/(items|estimates|files|reports|schemas|changes|permissions)(\/|$)/.test(url) || isOfLog(url)

/** Routes that follow the log, and those of migrations: a parameter that they do not declare is a mistake. */
const isOfLog = (url: string): boolean =>
  /^\/(log|webhooks|changes|migrations)(\/|$)/.test(url) || /^\/items\/[^/]+\/deleted$/.test(url)

/**
 * As of parameters, for the members of a message of a socket. Those of clients are ignored; 400 for other names that are not
 * known.
 */
export function refuseUnknownMembers(message: Readonly<Record<string, unknown>>, own: readonly string[]): void {
  const known = new Set([...ofClients, ...own])
  for (const key in message)
    if (!known.has(key) && !key.startsWith('_') && key !== '') throw unknown(key, known, own, 'member')
}

type Parameters = Readonly<{ known: ReadonlySet<string>; hinted: ReadonlySet<string>; own: readonly string[] }>

function refuseUnknown(query: Readonly<Record<string, unknown>>, { known, hinted, own }: Parameters): void {
  for (const key in query) {
    const name = nameOf(key)
    if (!known.has(name)) {
      if (!key.startsWith('_') && key !== '') throw unknown(key, hinted, own)
    } else {
      if (name !== key && !takesBrackets(name, own)) throw errors.badQuery(`${name}: takes no brackets`)
      refuseValues(name, key, query[key])
    }
  }
}

/** A parameter of one value would be read as absent. Of those of clients a route may have made one its own. */
const takesBrackets = (name: string, own: readonly string[]): boolean =>
  lists.has(name) || (inBrackets.has(name) && !own.includes(name))

/** PostgreSQL has no text with NUL. */
function refuseValues(name: string, key: string, value: unknown): void {
  if (Array.isArray(value) && name === key && !lists.has(name))
    throw new AppError(400, 'Invalid query parameters', {
      code: 'REPEATED_PARAMETER',
      details: `${name}: is given twice`,
    })
  if ([value].flat().some((text) => String(text).includes('\0')))
    throw errors.badQuery(`${name}: NUL characters are not allowed`)
}

/** `filter` of `filter[status][eq]`; what is not well-formed is a name of its own. */
function nameOf(key: string): string {
  const open = key.indexOf('[')
  return open > 0 && key.endsWith(']') ? key.slice(0, open) : key
}

/** `hinted` are the names that may be proposed: those that have an effect there. */
function unknown(key: string, hinted: ReadonlySet<string>, own: readonly string[], what = 'parameter'): AppError {
  const name = /^[^[]*/.exec(key)![0]
  const meant = hinted.has(name)
    ? name
    : [synonyms.get(name.toLowerCase()), nearName(name, [...readListParameters, 'cache', ...own])].find(
        (one) => one !== undefined && hinted.has(one),
      )
  const isColumn = hinted.has('filter') && /^\w+$/.test(name)
  const hint = meant ?? (isColumn ? `filter={"${name.slice(0, 64)}": …}` : undefined)
  return new AppError(400, 'Invalid query parameters', {
    code: 'UNKNOWN_PARAMETER',
    details: `unknown ${what} ${quoted(key)}${hint === undefined ? '' : `: did you mean ${hint}?`}`,
  })
}

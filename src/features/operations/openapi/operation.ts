import type { TSchema } from 'typebox'
import type { DeclaredRoute } from '../../../http/route.ts'
import { AuthError, GeneralError, OAuthError } from '../../../http/shapes.ts'
import { STATUS_CODES } from '../../../language/node-http.ts'
import { oncePer } from '../../../language/once.ts'
import { componentRef, type Json, type Stand, schemaOf } from './collections.ts'

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
export function operationOf(route: DeclaredRoute, place: OperationContext): Json {
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
  const { params, querystring, method, url } = route
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
  const asked = querystring === undefined ? [] : parametersAsked(querystring)
  const isWriting = method !== 'GET' && !url.startsWith('/auth/')
  return [...named, ...asked.map(share), ...(isWriting ? [share(idempotencyKey)] : [])]
}

/** No query string speaks of rows, so they are the same for every collection. */
const parametersAsked = oncePer((querystring: TSchema): readonly Json[] =>
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
    // Lists by commas; repeated names are understood as well.
    ...(place === 'query' && rest.type === 'array' && { style: 'form', explode: false }),
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
    responses[status.toUpperCase().replace('DEFAULT', 'default')] = answerOf(status, schemaOf(shape, stand))
  }
  if (!Object.keys(responses).some((status) => /^[23]/.test(status))) responses['2XX'] = { description: 'Done' }
  return { ...refusalsOf(route), ...responses }
}

function answerOf(status: string, schema: Json): Json {
  const { contentMediaType = 'application/json', description, content, ...rest } = schema
  const words = typeof description === 'string' ? description : (STATUS_CODES[status] ?? 'An answer')
  // Extensions may declare an answer by type of content.
  if (content !== undefined && typeof content === 'object') return { description: words, content: contentOf(content) }
  if (rest.type === 'null') return { description: words }
  return { description: words, content: { [contentMediaType as string]: { schema: rest } } }
}

function contentOf(content: object | null): Json {
  const types = Object.entries((content ?? {}) as Record<string, { schema?: TSchema }>)
  return Object.fromEntries(
    types.map(([type, { schema }]) => [type, schema === undefined ? {} : { schema: schemaOf(schema) }]),
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
export function refusalResponses(): Json {
  const entries = styles.flatMap((style) =>
    Object.entries(meanings).map(([status, description]) => [
      `${style}.${status}`,
      { description, content: { 'application/json': { schema: refusalSchema(style, status) } } },
    ]),
  )
  return Object.fromEntries(entries)
}

/** The shapes of refusals, as components. */
export function refusalSchemas(realtime: TSchema): Json {
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

export const securitySchemes: Json = {
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

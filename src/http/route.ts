import type { RouteOptions, RouteShorthandOptions } from 'fastify'
import type { Static, TObject, TSchema, TUnsafe } from 'typebox'
import type { RequiredScope } from '../access/scopes.ts'
import { serializerOf } from '../adapters/fastify.ts'
import { Type } from '../adapters/typebox.ts'
import type { App } from './http.ts'
import { AuthError, GeneralError, OAuthError, RealtimeError, readerOf } from './shapes.ts'

/** The declaration of a route. OpenAPI and the reference pages show it, and requests are read by it. */
export type Declaration = {
  /** Its purpose, in a few words: "Sign in with a password". */
  readonly summary: string
  readonly tag: Tag
  /**
   * The scope that a client's token needs (`access/scopes.ts`). No token opens routes that need a session, whatever
   * they declare.
   */
  readonly scope: RequiredScope
  /** More than the summary says, in Markdown. */
  readonly description?: string
  readonly params?: TObject
  readonly query?: TSchema
  readonly body?: TSchema
  /** It, or what it starts, mails somebody or calls another server: tools that call it say so. */
  readonly reachesOutside?: true
  /** The answer holds a secret that is shown this one time: what an Idempotency-Key has kept of it is sealed. */
  readonly answersSecret?: true
  /** By status. Refusals are the same everywhere and added to each route as `4xx`. */
  readonly response: Readonly<Record<number, TSchema>>
}

/** The chapters of the reference, and what the routes of each are about. */
export const chapters = {
  Items: 'Rows of collections: lists, single items, writes one by one and in bulk, imports and exports.',
  Reports: 'Groups and sums of items.',
  History: 'The past of an item, deleted items, requests and what they wrote, undo.',
  Log: 'The log as a whole: its export, its newest seal and the key that signs them.',
  Changes: 'The changes of items after a cursor, for programs that follow a collection.',
  Files: 'Stored files: upload, resumable upload, download and their records.',
  Assets: 'Stored images in another size or format.',
  Schemas: 'Collections, their fields, indexes and relations.',
  Permissions: 'The rights of each role, and named rules.',
  'Signing in': 'Registration and sign-in: with a password, by a link in a mail or by another service.',
  Account: 'The account of the caller: its data, its password, its address, and mails that confirm them.',
  Sessions:
    'Sessions of users: check, renew, list and end them; sign-out; looking at the application as somebody else.',
  Passkeys: 'Sign-in without a password.',
  'Two-factor': 'The second factor of a sign-in.',
  'API keys': 'Keys for programs that act for a user.',
  OAuth: 'Clients that users let in, and their tokens.',
  Tenants: 'Invitations to a tenant, and the tenant that a session works in.',
  Settings:
    'The name of the installation and its behaviour, the facts that a frontend needs before a sign-in, and kept views of lists.',
  Templates: 'Templates of mails.',
  Notifications: 'Messages to users inside the application.',
  Webhooks: 'Addresses that are told of changes.',
  Workflows: 'Steps that run after events, by the clock or on request, and what each execution did.',
  Realtime: 'Which collections tell sockets of their changes.',
  MCP: 'The tools for language models.',
  Migrations: 'Changes of the database that the installation brings along.',
  Operations: 'The state of the processes, jobs, queues and consumers.',
  Development: 'The mails that a server under development keeps instead of sending them.',
  Documentation: 'This description, the page that shows it, the client for browsers, and the console.',
} as const

export type Tag = keyof typeof chapters

/** Options for Fastify besides. */
export type DeclaredOptions = Pick<
  RouteShorthandOptions,
  'bodyLimit' | 'config' | 'exposeHeadRoute' | 'onRequest' | 'preValidation' | 'preHandler'
>

/** How a request is read and an answer written. */
type Treatment = {
  /** Parts that the route's own code reads: their declaration is for readers only, and costs a request nothing. */
  readonly readElsewhere?: 'all' | 'query' | 'body'
  /** The answer is ready text, or made of many shapes: the handler sends it by the reply. */
  readonly sendsText?: true
  /** The answer is serialised by its shape: a member that is not declared cannot leave. */
  readonly exact?: true
  /** Which body refusals have; the general one elsewhere. */
  readonly errors?: 'auth' | 'realtime' | 'oauth'
}

/** Of the declaration what handlers get their types from. */
type TypedSchema<D extends Declaration & Treatment> = {
  [Part in keyof D as Part extends keyof Names
    ? Part extends UntypedParts<D>
      ? never
      : Names[Part]
    : never]: Part extends 'response' ? { [Status in keyof D[Part]]: TUnsafe<AnswerType<D[Part][Status]>> } : D[Part]
}
type Names = { params: 'params'; query: 'querystring'; body: 'body'; response: 'response' }
type UntypedParts<D> = D extends { sendsText: true } ? 'response' : never
type AnswerType<Shape> = Shape extends TSchema ? Frozen<Static<Shape>> : never

/** Answers need not be ours to change. */
type Frozen<T> = T extends Date
  ? T
  : T extends readonly (infer Element)[]
    ? readonly Frozen<Element>[]
    : T extends object
      ? { readonly [Name in keyof T]: Frozen<T[Name]> }
      : T

/**
 * The options of a route, from its declaration: `app.post('/path', route({ summary, tag, body, response }), handler)`.
 * The request is read by the shapes before the handler runs, after the caller is known (`shapes.ts` has the rules and
 * the words of refusals), and the handler's `request.params`, `query` and `body` have their types.
 *
 * Answers are `JSON.stringify`ed as they are; `exact` ones are serialised by their shape.
 */
export function route<const D extends Declaration & Treatment>(
  declaration: D,
  options: DeclaredOptions = {},
): DeclaredOptions & { schema: TypedSchema<D> } {
  const { summary, tag, scope, description, params, query, body, response, answersSecret, reachesOutside } = declaration
  const schema = {
    summary,
    tags: [tag],
    ...(description !== undefined && { description }),
    ...(params !== undefined && { params }),
    ...(query !== undefined && { querystring: query }),
    ...(body !== undefined && { body }),
    response: { ...response, '4xx': refusals[declaration.errors ?? 'general'] },
  }
  return {
    ...options,
    config: {
      ...options.config,
      scope,
      ...(answersSecret && { answersSecret }),
      ...(reachesOutside && { reachesOutside }),
      ...(declaration.errors === 'oauth' && { errorStyle: 'oauth' as const }),
    },
    schema,
    validatorCompiler: readers[declaration.readElsewhere ?? 'none'],
    serializerCompiler: declaration.exact === true ? serializerOf : asItIs,
  } as never
}

/** The same for the routes of one chapter: `const declared = routesOf('Settings')`. */
export const routesOf =
  (tag: Tag) =>
  <const D extends Omit<Declaration, 'tag'> & Treatment>(declaration: D, options: DeclaredOptions = {}) =>
    route({ tag, ...declaration }, options)

const readers = {
  none: allBut('params'),
  query: allBut('params', 'querystring'),
  body: allBut('params', 'body'),
  all: () => unread,
}

/** Fastify then validates nothing. */
const unread = undefined as never

/** Parts of a path are text, and what is no id is not found. */
function allBut(...others: readonly string[]): typeof readerOf {
  return (part) => (others.includes(part.httpPart ?? '') ? unread : readerOf(part))
}

const asItIs = () => JSON.stringify

/** By `errors`. */
const refusals = {
  general: GeneralError,
  auth: AuthError,
  realtime: Type.Union([GeneralError, RealtimeError]),
  oauth: OAuthError,
}

/**
 * The callers of the routes of a group. `public`: anybody. `bearer`: a live session or an API key. `session`: a live
 * session. `leaving`: a live session, or a cookie of one that has ended. `admin`: the administrator role, also by a
 * key; `admin session`: only by a session. An Authorization header without a valid credential is 401 for all of them.
 */
export type AccessClass = 'public' | 'bearer' | 'session' | 'leaving' | 'admin' | 'admin session'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The callers of the route; set for its group. Anybody if it is not set. */
    access?: AccessClass
    /** The scope that a client's token needs; for routes of extensions without one `read` to read, else `write`. */
    scope?: RequiredScope
    /** Its answer holds a secret that is shown this one time. */
    answersSecret?: boolean
    /** It, or what it starts, mails somebody or calls another server. */
    reachesOutside?: boolean
    /** The endpoint of an extension that the route belongs to. */
    endpoint?: string
  }
}

/** A route as its declaration describes it; routes of extensions may lack everything but method and path. */
export type DeclaredRoute = {
  readonly method: string
  /** As the router has it: `/items/:collection/:id`. */
  readonly url: string
  readonly access: AccessClass
  readonly scope: RequiredScope
  readonly endpoint: string | undefined
  readonly reachesOutside?: boolean
  readonly summary?: string
  readonly description?: string
  readonly tags?: readonly string[]
  readonly params?: TSchema
  readonly querystring?: TSchema
  readonly body?: TSchema
  readonly response?: Readonly<Record<string, TSchema>>
}

/** The scope of a route that may not have said it. */
export const scopeOf = (method: string, declared: RequiredScope | undefined): RequiredScope =>
  declared ?? (['GET', 'HEAD', 'OPTIONS'].includes(method) ? 'read' : 'write')

/** The routes that are registered from now on; asked for when all are, which is after `ready`. */
export function declaredRoutes(app: App): () => readonly DeclaredRoute[] {
  const registered: RouteOptions[] = []
  app.addHook('onRoute', (route) => void registered.push(route))
  let declared: readonly DeclaredRoute[] | undefined
  return () => {
    declared ??= registered.flatMap(declaredOf)
    return declared
  }
}

function declaredOf({ method, url, schema = {}, config }: RouteOptions): DeclaredRoute[] {
  // Handlers of CORS preflights declare nothing.
  const isDescribed = (one: string) => one !== 'HEAD' && (one !== 'OPTIONS' || 'summary' in schema)
  const methods = [method].flat().filter(isDescribed)
  return methods.map((one) => ({
    ...(schema as Partial<DeclaredRoute>),
    method: one,
    url,
    access: config?.access ?? 'public',
    scope: scopeOf(one, config?.scope),
    endpoint: config?.endpoint,
    ...(config?.reachesOutside && { reachesOutside: true }),
  }))
}

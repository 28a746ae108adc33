import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { RouteOptions } from 'fastify'
import type { TSchema } from 'typebox'
import { Errors } from 'typebox/value'
import { beforeAll, describe, expect, it } from 'vitest'
import { exampleOf } from '../../scripts/reference/example.ts'
import type { AppError } from '../../src/errors.ts'
import type { App } from '../../src/http/http.ts'
import { AuthError, readerOf } from '../../src/http/shapes.ts'
import { type Api, startApi } from '../support/api.ts'

type Schema = {
  access?: string
  scope?: string
  answersSecret?: boolean
  summary?: string
  tags?: readonly string[]
  params?: TSchema
  querystring?: TSchema
  body?: TSchema
  response?: Record<string, TSchema>
}

/** Every route of a started server with all its parts on, `METHOD /path` and what it declares. */
const routes = new Map<string, Schema>()

let api: Api

beforeAll(async () => {
  const watch = (message: unknown) =>
    (message as { fastify: App }).fastify.addHook('onRoute', (route) => {
      for (const method of [route.method].flat())
        if (method !== 'HEAD' && method !== 'OPTIONS') routes.set(`${method} ${route.url}`, schemaOf(route))
    })
  subscribe('fastify.initialization', watch)
  try {
    api = await startApi({ SOCKET_ENABLED: 'true' })
  } finally {
    unsubscribe('fastify.initialization', watch)
  }
})

const schemaOf = ({ schema = {}, config }: RouteOptions): Schema =>
  ({ ...schema, access: config?.access, scope: config?.scope, answersSecret: config?.answersSecret }) as Schema

/** One for each content type, where an answer has several. */
const shapesOf = (
  shape: (TSchema & { readonly content?: Readonly<Record<string, { schema: TSchema }>> }) | undefined,
) =>
  shape?.content === undefined
    ? shape === undefined
      ? []
      : [shape]
    : Object.values(shape.content).map(({ schema }) => schema)

/** What `work` says of each route, where it says something. */
function findings(work: (schema: Schema, route: string) => string | undefined): string[] {
  return [...routes].flatMap(([route, schema]) => {
    const finding = work(schema, route)
    return finding === undefined ? [] : [`${route}: ${finding}`]
  })
}

/** The members of a shape, also deep inside. */
const membersIn = (shape: unknown): string[] =>
  typeof shape !== 'object' || shape === null
    ? []
    : Object.entries(shape).flatMap(([name, one]) =>
        name === 'properties'
          ? [...Object.keys(one as object), ...Object.values(one as object).flatMap(membersIn)]
          : membersIn(one),
      )

describe('every route', () => {
  it('says so where what an Idempotency-Key keeps of its answer holds a secret', () => {
    const secret = /^(secret|clientSecret|client_secret|password|token|key|apiKey)$/
    const found = findings(({ response = {}, answersSecret = false }, route) => {
      const isKept = /^(POST|PUT|PATCH|DELETE) (?!\/(auth|oauth)(\/|$))/.test(route)
      const answers = Object.entries(response).filter(([status]) => status.startsWith('2'))
      const holds = isKept && answers.some(([, shape]) => membersIn(shape).some((name) => secret.test(name)))
      return holds === answersSecret ? undefined : `answersSecret should be ${holds}`
    })
    expect(found).toEqual([])
  })

  it('is looked at', () => expect(routes.size).toBeGreaterThan(130))

  it('refuses in the words of its part of the API', () => {
    const wrong = findings(({ response }, route) =>
      (response?.['4xx'] === AuthError) === / \/auth\//.test(route) ? undefined : 'has the errors of another',
    )
    expect(wrong).toEqual([])
  })

  it('refuses what does not fit in plain words, never in those of the validator', () => {
    const wrong = [7, ' ', '-1.5', '999999999999', true, [], [[]], {}, { no: 1 }]
    const members = (shape: unknown) => Object.keys((shape as { properties?: object })?.properties ?? {})
    let refused = 0
    const found = findings(({ querystring, body }) => {
      const raw = [querystring && (['querystring', querystring] as const), body && (['body', body] as const)]
        .filter((part) => part !== undefined)
        .flatMap(([httpPart, schema]) => {
          const read = readerOf({ schema: schema as never, method: 'POST', url: '/', httpPart })
          const values = [...wrong, ...members(schema).flatMap((name) => wrong.map((value) => ({ [name]: value })))]
          return values.map((value) => read(value) as { error?: AppError })
        })
        .flatMap(({ error }) => (error === undefined ? [] : [`${error.message}: ${JSON.stringify(error.details)}`]))
      refused += raw.length
      return raw.find((words) =>
        /querystring|body\/|must match|must be (equal|[<>=]|\w+$)|have required|: null/.test(words),
      )
    })
    expect(found).toEqual([])
    expect(refused).toBeGreaterThan(1000)
  })

  it.each<[method: string, path: string, body: object | undefined, code: string, details: string]>([
    ['GET', '/ops/jobs?state=foo', undefined, 'BAD_QUERY', 'state: expected one of "created", '],
    ['GET', '/ops/jobs?limit=101', undefined, 'BAD_QUERY', 'limit: expected at most 100'],
    ['GET', '/log/moments', undefined, 'BAD_QUERY', 'collections: is missing'],
    ['POST', '/webhooks', {}, 'BAD_REQUEST', 'name: is missing'],
    ['POST', '/migrations/create', {}, 'BAD_REQUEST', 'name: is missing'],
    [
      'PATCH',
      '/webhooks/0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44',
      { actions: 'x' },
      'BAD_REQUEST',
      'actions: expected a list',
    ],
  ])('%s %s %j is refused with the place and what may stand there', async (method, path, body, code, details) => {
    const { status, body: answer } = await api.admin(method, path, body)
    expect({ status, ...answer.error }).toMatchObject({ status: 400, code, details: expect.stringContaining(details) })
  })

  it('says the place in its message where its errors have no details', async () => {
    const { status, body } = await api.anonymous('POST', '/oauth/register', { redirect_uris: 'x' })
    expect([status, body.error_description]).toEqual([400, expect.stringContaining('redirect_uris: expected')])
  })

  it('shows no answer as its example that both signs in and asks for something first', () => {
    const wrong = findings(({ response = {} }) => {
      const shown = Object.entries(response).flatMap(([status, shape]) =>
        status === '200' || status === '201' ? shapesOf(shape).map((one) => exampleOf(one)) : [],
      )
      const isBoth = (one: unknown) =>
        typeof one === 'object' &&
        one !== null &&
        'token' in one &&
        ('twoFactorRequired' in one || 'requiresEmailVerification' in one)
      return shown.some(isBoth) ? 'signs in and does not' : undefined
    })
    expect(wrong).toEqual([])
  })

  it('declares a summary, a tag, and what it answers', () => {
    const missing = findings(({ summary, tags, response }) => {
      const lacks = [
        ...(summary ? [] : ['summary']),
        ...(tags?.length === 1 ? [] : ['tag']),
        ...(Object.keys(response ?? {}).some((status) => /^[23]\d\d$/.test(status)) ? [] : ['response']),
        ...(response?.['4xx'] === undefined ? ['refusals'] : []),
      ]
      return lacks.length === 0 ? undefined : `lacks ${lacks}`
    })
    expect(missing).toEqual([])
  })

  it('declares the parameters of its path', () => {
    // A rest of the path may be declared, too.
    const named = ({ params }: Schema) =>
      Object.keys((params as { properties?: object })?.properties ?? {})
        .filter((name) => name !== '*')
        .sort()
    const wrong = findings((schema, route) => {
      const inPath = [...route.matchAll(/:(\w+)/g)].map(([, name]) => name!).sort()
      return `${inPath}` === `${named(schema)}` ? undefined : `declares ${named(schema)}`
    })
    expect(wrong).toEqual([])
  })

  it('declares the body that it takes', () => {
    const without = findings(({ body }, route) =>
      body !== undefined || !/^(POST|PUT|PATCH)/.test(route) || bodiless.has(route) ? undefined : 'has no body',
    )
    expect(without).toEqual([])
  })

  it('declares the scope that a client needs: more than `read` for what changes something, `admin` for administrators', () => {
    const wrong = findings(({ access = 'public', scope }, route) => {
      if (scope === undefined) return 'declares no scope'
      if (access.startsWith('admin') && !access.endsWith('session'))
        return scope === 'admin' ? undefined : `${scope} for administrators`
      // Only sessions open these: no client does.
      if (/session|leaving/.test(access)) return scope === 'none' ? undefined : `${scope} for sessions`
      if (/^(GET|HEAD) /.test(route)) return scope === 'write' ? 'reads with write' : undefined
      return scope === 'read' && !readsOfPosts.has(route) ? 'writes with read' : undefined
    })
    expect(wrong).toEqual([])
    const open = findings(({ scope }, route) =>
      scope === 'none' && !/ \/(auth|oauth|_dev|docs|console|\.well-known\/(oauth|openid))(\/|-|$)/.test(route)
        ? ''
        : undefined,
    )
    expect(open).toEqual(needNone)
  })

  it('has examples that fit what it declares', () => {
    const wrong = findings(({ params, querystring, body, response = {} }) => {
      const parts = Object.entries({ params, querystring, body, ...response })
      for (const [part, shape] of parts.flatMap(([part, shape]) =>
        shapesOf(shape).map((one) => [part, one] as const),
      )) {
        try {
          const [error] = Errors(shape, exampleOf(shape))
          if (error !== undefined) return `${part}${error.instancePath} ${error.message}`
        } catch (error) {
          return `${part}: ${(error as Error).message}`
        }
      }
      return undefined
    })
    expect(wrong).toEqual([])
  })
})

/** Questions that are asked by POST. */
const readsOfPosts: ReadonlySet<string> = new Set([
  'POST /reports/:collection',
  'POST /reports/stats',
  'POST /workflows/validate',
  'POST /permissions/explain',
  'POST /permissions/who',
  'POST /permissions/impact',
])

/** Outside of signing in: what anybody may know. */
const needNone: readonly string[] = [
  ...[
    'GET /health',
    'GET /ready',
    'GET /metrics',
    'GET /',
    'POST /',
    'GET /.well-known/daybook-log-key',
    'GET /settings',
  ],
  ...['GET /settings/by-app-url', 'GET /settings/branding', 'GET /openapi', 'GET /client.js'],
].map((route) => `${route}: `)

/** These do what their path says, and nothing that is sent along has a say in it. */
const bodiless: ReadonlySet<string> = new Set([
  'POST /',
  'POST /auth/logout',
  'POST /oauth/userinfo',
  'POST /auth/passkey/authenticate/options',
  'POST /settings/reload',
  'POST /files/migrate-storage-structure',
  'POST /files/tus',
  'POST /permissions/reload',
  'POST /schemas/indexes/migrate',
  'POST /ops/jobs/:id/retry',
  'POST /workflows/:id/executions/:execution/cancel',
  'POST /ops/jobs/:id/cancel',
  'POST /ops/consumers/:name/skip',
  'POST /ops/queues/:queue/redrive',
  'POST /realtime/collections/:collection/disable',
  'POST /realtime/reload',
  'POST /realtime/initialize',
  'POST /webhooks/:id/rotate',
  'POST /webhooks/:id/test',
  'POST /webhooks/:id/deliveries/:delivery/redeliver',
])

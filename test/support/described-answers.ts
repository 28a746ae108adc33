import type { FastifyRequest, RouteOptions } from 'fastify'
import type { TSchema } from 'typebox'
import { afterAll, expect } from 'vitest'
import { fits, problemsOf } from '../../src/adapters/typebox.ts'
import type { Catalog } from '../../src/catalog/catalog.ts'
import { rightsOf } from '../../src/features/data/items/items.ts'
import { type CallerKind, describeApi, pathOf } from '../../src/features/operations/openapi/openapi.ts'
import type { App } from '../../src/http/http.ts'
import { type DeclaredRoute, declaredRoutes } from '../../src/http/route.ts'
import type { Runtime } from '../../src/process/runtime.ts'
import type { Access } from '../../src/query/access.ts'
import { onEachServer } from './each-server.ts'

/** The process behind each server whose answers are looked at. */
const runtimes = new WeakMap<object, Runtime>()

/** Holds the answers of a server against what `GET /openapi` describes to their caller; a file with a wrong one fails. */
export function checkDescribedAnswers(app: App, runtime: Runtime): void {
  runtimes.set(app, runtime)
}

/** The first answer by what is wrong with it. */
const found = new Map<string, string>()

onEachServer((fastify) => {
  const declared = declaredRoutes(fastify)
  fastify.addHook('onRoute', (route) => {
    if ((route.schema as { summary?: string } | undefined)?.summary === undefined) return
    const note = (request: FastifyRequest, _reply: unknown, done: () => void) => {
      const runtime = runtimes.get(fastify)
      if (runtime !== undefined) catalogs.set(request, runtime.catalog.current())
      done()
    }
    const check: Hook = (request, reply, payload, done) => {
      const runtime = runtimes.get(fastify)
      const isJson = String(reply.getHeader('content-type') ?? '').startsWith('application/json')
      const text = typeof payload === 'string' && payload.length <= longest && isJson ? payload : undefined
      if (runtime !== undefined && request.method !== 'HEAD' && request.caller !== null)
        look(runtime, declared(), request, reply.statusCode, text)
      done(null, payload)
    }
    route.onSend = [check, ...[route.onSend ?? []].flat()]
    route.onRequest = [note, ...[route.onRequest ?? []].flat()]
  })
})

type Hook = Extract<NonNullable<RouteOptions['onSend']>, readonly unknown[]>[number]

/** An answer may be of the moment when its request came, though the collections have changed since. */
const catalogs = new WeakMap<FastifyRequest, Catalog>()

type Json = Record<string, any>

/** Answers longer than this are only held against their status. Characters. */
const longest = 100_000

function look(
  runtime: Runtime,
  routes: readonly DeclaredRoute[],
  request: FastifyRequest,
  status: number,
  text: string | undefined,
): void {
  const url = request.routeOptions.url!
  const place = `${request.method} ${url} ${status}`
  const operation = operationFor(runtime, routes, request)
  if (operation === undefined) {
    // The cookie of an ended session may still be given back.
    if (status < 400 && request.sessionCookie !== 'dead')
      found.set(`${place} is not described to its caller`, text ?? '')
    return
  }
  const answer = answerOf(operation, status)
  if (answer === undefined) return void found.set(`${place} is not described`, text ?? '')
  const schema = answer.content?.['application/json']?.schema as TSchema | undefined
  // A hook makes of rows what it likes.
  if (schema === undefined || text === undefined || (!runtime.hooks.isEmpty() && status < 400)) return
  const value = withoutAggregates(JSON.parse(text), request)
  if (fits(schema, value)) return
  const before = catalogs.get(request)
  if (before !== undefined && before !== runtime.catalog.current()) {
    const then = answerOf(operationFor(runtime, routes, request, before), status)
    if (then !== undefined && fits(then.content['application/json'].schema, value)) return
  }
  const problem = problemsOf(schema, value).at(-1)
  found.set(`${place}: ${problem?.instancePath} ${problem?.message}`, text.slice(0, 500))
}

/** An answer without the members whose names the request has given to aggregates: their types are not those of the fields. */
function withoutAggregates(answer: Json, { query, body }: FastifyRequest): unknown {
  if (!Array.isArray(answer?.data)) return answer
  const names = [query, body].flatMap((asked) => namesOf((asked as Json | null | undefined)?.aggregate))
  if (names.length === 0) return answer
  const isOther = ([name]: [string, unknown]) => !names.includes(name)
  return { ...answer, data: answer.data.map((row) => Object.fromEntries(Object.entries(row).filter(isOther))) }
}

function namesOf(aggregate: unknown): string[] {
  const isText = typeof aggregate === 'string'
  return isText && !aggregate.startsWith('{') ? [] : Object.keys((isText ? JSON.parse(aggregate) : aggregate) ?? {})
}

const answerOf = (operation: Json | undefined, status: number): Json | undefined =>
  operation?.responses[status] ?? operation?.responses[`${String(status)[0]}XX`]

const operations = new WeakMap<Access | Runtime, Map<string, Json | undefined>>()

/** The operation as the caller's document has it: the document of this one route and collection, its references resolved. */
function operationFor(
  runtime: Runtime,
  routes: readonly DeclaredRoute[],
  request: FastifyRequest,
  catalog = runtime.catalog.current(),
): Json | undefined {
  const { caller, method, params, query } = request
  const url = request.routeOptions.url!
  const { collection: name } = (params ?? {}) as { collection?: string }
  // Others have members of the request's own naming.
  const isPlain = url.startsWith('/items/') && !/aggregate|groupBy/.test(JSON.stringify(query ?? {}))
  const by = caller.userId === undefined ? 'nothing' : caller.keyId === undefined ? 'session' : 'key'
  const callerKind: CallerKind = { by, admin: caller.admin }
  // What is described of other routes does not depend on collections, nor on rights to them.
  const [owner, version] = name === undefined ? [runtime, ''] : [caller.access, catalog.version]
  const kept = operations.get(owner) ?? new Map<string, Json | undefined>()
  operations.set(owner, kept)
  const key = JSON.stringify([version, callerKind, method, url, name, isPlain])
  if (!kept.has(key)) {
    const ofThen = { ...runtime, catalog: { ...runtime.catalog, current: () => catalog } }
    const document: Json = describeApi({
      routes: routes.filter((route) => route.method === method && route.url === url),
      catalog,
      callerKind,
      rightsOf: (collection) =>
        collection.name === name ? rightsOf(ofThen, caller.access, collection) : nothingMayBeDone,
      config: { ...runtime.config, openapi: everything, access: { ...runtime.config.access, schemasPublic: true } },
    })
    const path = document.paths[pathOf(url, name)] ?? document.paths[pathOf(url)]
    kept.set(key, resolved(document, path?.[method.toLowerCase()], isPlain ? name : undefined, []))
  }
  return kept.get(key)
}

const nothingMayBeDone = { read: undefined, create: undefined, update: undefined, delete: false }

const everything = {
  enabled: true,
  includeAuth: true,
  includeSchema: true,
  includePermissions: true,
  includeSettings: true,
  includeNotifications: true,
  includeMultiTenant: true,
  includeUtils: true,
}

/** With what references lead to; rows of the `closed` collection have no members but those described. */
function resolved(document: Json, part: any, closed: string | undefined, way: readonly string[]): any {
  if (Array.isArray(part)) return part.map((one) => resolved(document, one, closed, way))
  if (part === null || typeof part !== 'object') return part
  if (typeof part.$ref === 'string') {
    if (way.includes(part.$ref)) return {}
    const [, , kind, name] = part.$ref.split('/')
    const target = resolved(document, document.components[kind][name], closed, [...way, part.$ref])
    return kind === 'schemas' && name === closed ? { ...target, additionalProperties: false } : target
  }
  return Object.fromEntries(Object.entries(part).map(([key, one]) => [key, resolved(document, one, closed, way)]))
}

afterAll(() => expect([...found]).toEqual([]))

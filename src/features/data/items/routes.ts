import type { IncomingMessage } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Config } from '../../../config/config.ts'
import { rawQuery } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { type App, actorOf, sendJson } from '../../../http/http.ts'
import { bodyParser, excessOf, fingerprintList } from '../../../http/json-values.ts'
import { breather } from '../../../language/breather.ts'
import { aloneOrValue } from '../../../language/exact-json.ts'
import { peek } from '../../../language/text.ts'
import { resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import type { ItemHooks } from '../hooks/hooks.ts'
import { isFresh, itemTag, listTag, readCached, type ServedAnswer, versionsOf } from './cached-reads.ts'
import { type ChangeAnswer, changeItems, updatesIn } from './change.ts'
import type { ItemReads, ItemWrites, Requester } from './context.ts'
import {
  createAllRoute,
  createRoute,
  deleteAllRoute,
  deleteRoute,
  estimatesRoute,
  exportRoute,
  listRoute,
  readRoute,
  sortRoute,
  updateAllRoute,
  updateRoute,
  upsertRoute,
} from './declarations.ts'
import { exportItems } from './file-rows.ts'
import { listItems, readItem } from './hooking.ts'
import { readJsonArray } from './json-array.ts'
import { sortItem } from './manual-sort.ts'
import { type DependencyRecorder, type Via, versionOf } from './reads.ts'

/** `/items/{collection}`. Row events are appended by the database; these routes emit no others. */
export function itemRoutes(app: App, deps: ItemWrites): void {
  readRoutes(app, deps)
  changeRoutes(app, deps)
  app.register(async (scope) => bulkRoutes(scope as App, deps))
}

function readRoutes(app: App, deps: ItemReads): void {
  app.get('/items/:collection', listRoute, (request, reply) =>
    answerList(deps, request, reply, request.params.collection),
  )
  app.get('/items/:collection/export', exportRoute, async (request, reply) => {
    const { content, type, name } = await exportItems(
      deps,
      requesterOf(request),
      request.params.collection,
      queryOf(request),
      { replicaFor: request.caller },
    )
    return reply.type(type).header('content-disposition', `attachment; filename="${name}"`).send(content)
  })
  app.get('/estimates', estimatesRoute, async (request) => ({
    data: await readEstimates(deps, requesterOf(request), request.query.collections?.split(',')),
  }))
  app.get('/items/:collection/:id', readRoute, (request, reply) =>
    answerItem(deps, request, reply, request.params.collection, request.params.id),
  )
}

/** Answers a request for the items of a collection, as its query asks. */
export async function answerList(
  deps: ItemReads,
  request: FastifyRequest,
  reply: FastifyReply,
  collection: string,
): Promise<FastifyReply> {
  const query = queryOf(request)
  const served = await readCached(deps, request, reply, {
    collections: [collection],
    isPlain: query.changesCursor === undefined && !isHooked(deps, collection, 'items.read'),
    read: async (recorder) => ({
      body: await listItems(deps, requesterOf(request), collection, query, {
        ...viaOf(request, recorder),
        defaultLimit: deps.config.query.defaultLimit,
      }),
    }),
    tagOf: listTag,
  })
  return answer(request, reply, served)
}

/** Answers a request for one item. */
export async function answerItem(
  deps: ItemReads,
  request: FastifyRequest,
  reply: FastifyReply,
  collection: string,
  id: string,
): Promise<FastifyReply> {
  const query = queryOf(request)
  const served = await readCached(deps, request, reply, {
    collections: [collection],
    isPlain: !isHooked(deps, collection, 'items.read.one'),
    read: (recorder) => readItem(deps, requesterOf(request), collection, id, query, viaOf(request, recorder)),
    tagOf: tagOfItem,
    isStill: async ({ version }) => version === (await versionOf(deps, collection, id)),
  })
  return answer(request, reply, served)
}

function changeRoutes(app: App, deps: ItemWrites): void {
  app.post('/items/:collection', createRoute, async (request, reply) => {
    const change = { action: 'create', payloads: [request.body] } as const
    const written = await changeItems(deps, requesterOf(request), request.params.collection, change, queryOf(request))
    return sendJson(reply.code(201), `{"data":${answersOf(written)}}`)
  })
  app.patch('/items/:collection/:id', updateRoute, async (request, reply) => {
    const { collection, id } = request.params
    const ifMatch = versionsOf(request.headers['if-match'])
    const change = { action: 'update', changes: [{ id, payload: request.body }], ifMatch } as const
    const written = await changeItems(deps, requesterOf(request), collection, change, queryOf(request))
    return sendJson(reply, `{"data":${answersOf(written)}}`)
  })
  app.delete('/items/:collection/:id', deleteRoute, async (request, reply) => {
    const { collection, id } = request.params
    const ifMatch = versionsOf(request.headers['if-match'])
    const gone = await changeItems(deps, requesterOf(request), collection, { action: 'delete', ids: [id], ifMatch })
    return sendJson(reply, `{"data":{"id":${gone.ids[0]}}}`)
  })
}

/** Routes for callers with a session. */
export function itemBearerRoutes(app: App, deps: ItemWrites): void {
  app.post('/utils/sort/:collection', sortRoute, async (request) => ({
    data: await sortItem(deps, requesterOf(request), request.params.collection, request.body),
  }))
}

function bulkRoutes(app: App, deps: ItemWrites): void {
  acceptBulkBodies(app, deps.config)
  app.put('/items/:collection', upsertRoute, async (request, reply) => {
    refuseIfMatch(request)
    const isList = Array.isArray(request.body)
    const payloads = isList ? (request.body as readonly unknown[]) : [request.body]
    const query = queryOf(request)
    const change = { action: 'upsert', payloads, asList: isList, key: query.key } as const
    const written = await changeItems(deps, requesterOf(request), request.params.collection, change, query)
    if (isList) return sendJson(reply, `{"data":[${written.rows ?? written.ids}]}`)
    return sendJson(reply.code(written.created ? 201 : 200), `{"data":${answersOf(written)}}`)
  })
  app.post('/items/:collection/bulk', createAllRoute, async (request, reply) => {
    const payloads = request.body
    const change = { action: 'create', payloads, asList: true } as const
    const { ids, rows } = await changeItems(
      deps,
      requesterOf(request),
      request.params.collection,
      change,
      queryOf(request),
    )
    return sendJson(reply.code(201), `{"data":[${rows ?? ids}]}`)
  })
  app.patch('/items/:collection/bulk', updateAllRoute, async (request, reply) => {
    refuseIfMatch(request)
    const changes = updatesIn(deps, request.params.collection, request.body)
    const { ids, rows } = await changeItems(
      deps,
      requesterOf(request),
      request.params.collection,
      { action: 'update', changes },
      queryOf(request),
    )
    return sendJson(reply, `{"data":[${rows ?? ids}]}`)
  })
  app.delete('/items/:collection/bulk', deleteAllRoute, async (request, reply) => {
    refuseIfMatch(request)
    const ids = request.body
    await changeItems(deps, requesterOf(request), request.params.collection, { action: 'delete', ids })
    return reply.code(204).send()
  })
}

/** A client that sends it would believe that no newer version is overwritten. */
function refuseIfMatch({ headers }: FastifyRequest): void {
  if (headers['if-match'] !== undefined)
    throw errors.badBody('If-Match is for one item: PATCH or DELETE /items/{collection}/{id}')
}

export function requesterOf(request: FastifyRequest): Requester {
  const { access, user, sessionId } = request.caller
  return { actor: actorOf(request), access, user, sessionId }
}

/** From wherever the caller's own writes can be read. */
function viaOf({ caller }: FastifyRequest, recorder: DependencyRecorder | undefined): Via {
  return { recorder, replicaFor: caller }
}

export function queryOf(request: FastifyRequest): Record<string, unknown> {
  return request.query as Record<string, unknown>
}

/** The one row that was written: its id alone, or what was asked for of it. */
function answersOf({ ids, rows }: ChangeAnswer): string {
  return rows === undefined ? `{"id":${ids[0]}}` : rows[0]!
}

const tagOfItem = (body: string, version: string | undefined): string =>
  version === undefined ? listTag(body) : itemTag(version, body)

/** A hook may make something else of the same request, and is notified of every read. */
const isHooked = ({ hooks }: ItemHooks, collection: string, event: 'items.read' | 'items.read.one'): boolean =>
  hooks.has(collection, event) || hooks.has(collection, `${event}.after`)

/** An answer that the client can keep; 304 when it has it already (RFC 9110 §13.1.2). */
function answer(request: FastifyRequest, reply: FastifyReply, { body, tag }: ServedAnswer): FastifyReply {
  if (tag === undefined) return sendJson(reply, body)
  reply.header('etag', tag)
  if (isFresh(request.headers['if-none-match'], tag)) return reply.code(304).send()
  return sendJson(reply, body)
}

/** The text is JSON already; serialising it again would cost more than the query. */

/** About how many rows a collection has. */
type Estimate = { readonly collection: string; readonly rows: number }

/** Fewer rows are counted in no time. */
const fewestEstimated = 100_000

/**
 * `GET /estimates`: about how many rows large collections have, by the statistics of the database, which takes no time however many
 * there are. Only of collections with more than 100,000 rows of which the caller may read every one: of others it would tell how
 * many are hidden. Soft-deleted rows are left out. A collection that the database has not analyzed yet has no estimate.
 */
async function readEstimates(
  deps: ItemReads,
  { access }: Requester,
  asked: readonly string[] | undefined,
): Promise<readonly Estimate[]> {
  const catalog = deps.catalog.current()
  const env = resolveEnv(deps)
  const open = [...catalog.collections.values()].filter(
    ({ name }) =>
      (asked === undefined || asked.includes(name)) &&
      (access.admin || access.grant(name, 'read') !== undefined) &&
      resolveCondition(catalog, access, name, 'read', env, { includeDeleted: true }) === undefined,
  )
  const values = [open.map(({ name }) => name), open.map(({ paranoid }) => paranoid), fewestEstimated]
  const rows = await deps.db.any<Estimate>(rawQuery(estimatesSql, values))
  return rows
}

/** A partitioned table has no statistics of its own; of rows that are marked as deleted there is the share of those that are not. */
const estimatesSql = `select e.collection, e.rows from (
    select a.name as collection, round(
      coalesce((select sum(greatest(p.reltuples, 0)) from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid where t.isleaf), c.reltuples)
      * case when a.paranoid then coalesce((select s.null_frac from pg_stats s
          where s.schemaname = 'public' and s.tablename = a.name and s.attname = 'deletedAt'), 1) else 1 end)::float8 as rows
    from unnest($1::text[], $2::boolean[]) a(name, paranoid)
      join pg_class c on c.relname = a.name and c.relnamespace = 'public'::regnamespace) e
  where e.rows > $3::float8`

/** Bytes; a body that is no longer is parsed in one go. */
const smallBody = 1_048_576
const what = 'The request body'

/**
 * JSON bodies of routes that take lists. Elements are counted as they come in, and one too many (BULK_MAX_ITEMS) ends the
 * reading: 413. A long list is parsed element by element while it arrives, so that others have their turn meanwhile.
 */
function acceptBulkBodies(app: App, config: Config): void {
  const parseBody = bodyParser(app)
  const most = config.overload.bulkItems
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', (request, payload, done) => {
    const parse = (text: string) => parseBody(request, text)
    readBody(request, payload, { parse, most }).then((body) => done(null, body), done)
  })
}

type ElementReading = { readonly parse: (text: string) => unknown; readonly most: number }

async function readBody(request: FastifyRequest, payload: IncomingMessage, reading: ElementReading): Promise<unknown> {
  const text = textOf(payload, request.routeOptions.bodyLimit ?? Number.POSITIVE_INFINITY)
  if (Number(request.headers['content-length']) <= smallBody) return parseWhole(await joined(text), reading)
  const [start, chunks] = await peek(text, (beginning) => beginning.trimStart()[0])
  return start === '[' ? readList(request, chunks, reading) : parseWhole(await joined(chunks), reading)
}

function parseWhole(text: string, { parse, most }: ElementReading): unknown {
  if (text === '') return undefined
  const excess = excessOf(text)
  if (excess !== undefined) throw excess
  const body = parse(text)
  if (Array.isArray(body) && body.length > most) throw tooMany(most)
  return body
}

async function readList(request: FastifyRequest, chunks: AsyncIterable<string>, { parse, most }: ElementReading) {
  const breathe = breather()
  const fingerprint = fingerprintList(request)
  const elements: unknown[] = []
  const limits = { largestElement: Number.POSITIVE_INFINITY, parse: (text: string) => aloneOrValue(text, parse(text)) }
  for await (const { value } of readJsonArray(chunks, limits)) {
    if (elements.length === most) throw tooMany(most)
    elements.push(value)
    fingerprint?.add(value)
    await breathe()
  }
  fingerprint?.end()
  return elements
}

async function joined(text: AsyncIterable<string>): Promise<string> {
  const pieces: string[] = []
  for await (const piece of text) pieces.push(piece)
  return pieces.join('')
}

/** The rest of a body that is too large stays unread: the answer to it needs the line. */
async function* textOf(payload: IncomingMessage, limit: number): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true })
  let size = 0
  const decoded = (chunk?: Buffer) => {
    try {
      return chunk === undefined ? decoder.decode() : decoder.decode(chunk, { stream: true })
    } catch (error) {
      throw new AppError(400, `${what} is not valid UTF-8`, { code: 'INVALID_UTF8', cause: error })
    }
  }
  for await (const chunk of arriving(payload)) {
    size += chunk.length
    if (size > limit) throw new AppError(413, 'Request body is too large')
    yield decoded(chunk)
  }
  yield decoded()
}

/** A client that leaves in the middle is its own mistake. */
async function* arriving(payload: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    yield* payload.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  } catch (error) {
    const refused = (error as { statusCode?: unknown }).statusCode !== undefined
    throw refused ? error : Object.assign(errors.badBody('The request body did not arrive whole'), { cause: error })
  }
}

const tooMany = (most: number) =>
  new AppError(413, `Request body must not hold more than ${most} items`, { code: 'TOO_MANY_ITEMS' })

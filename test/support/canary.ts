import { randomBytes } from 'node:crypto'
import { Writable } from 'node:stream'
import pino from 'pino'
import { afterAll } from 'vitest'
import { buildServer } from '../../src/api/server.ts'
import type { App } from '../../src/http/http.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { type Answer, type Api, type Call, startApi } from './api.ts'
import { testConfig } from './prepare.ts'
import { connect, type TestSocket } from './socket.ts'

/** A web process that remembers every answer, frame and log line, and tells which of them holds a canary. */
export type Watched = {
  as(token?: string): Call
  /** Connects, and subscribes to these collections. */
  socket(token: string, ...collections: string[]): Promise<TestSocket>
  /** Resolves when it knows the permissions that another process has been answered for. */
  reload(): Promise<void>
  /** Where a canary was seen since the last call: the request, `frame` or `log`. */
  leaks(): string[]
}

/** Data with canaries in it, and a user who must never see one. */
export type Attacked = {
  /** The watched process knows whom it has made, too. */
  readonly api: Api
  readonly watched: Watched
  /** May read some fields of notes, comments and users, and only notes of their own. */
  readonly lim: Awaited<ReturnType<Api['user']>>
  /** Reads as `lim`, in the watched process. */
  readonly attack: Call
  /** Text in the hidden field, in ungranted fields, and behind relations. */
  readonly canaries: { readonly hidden: string; readonly ungranted: string; readonly vault: string }
  readonly ids: {
    readonly mine: string
    readonly other: string
    readonly otherUser: string
    readonly vault: string
    readonly comment: string
  }
}

const closers: (() => Promise<void>)[] = []

// Runs before the hooks of what is imported above: connections close before their database is dropped.
afterAll(async () => {
  for (const close of closers) await close()
})

const grants = [
  {
    collection: 'note',
    action: 'read',
    fields: ['id', 'title', 'stars', 'userCreated_Id', 'owner_Id', 'owner.firstName', 'comments.text', 'vault.id'],
    conditions: { userCreated_Id: '$CURRENT_USER' },
  },
  { collection: 'comment', action: 'read', fields: ['text'] },
  { collection: 'svc_User', action: 'read', fields: ['firstName'] },
]

/** Three notes: one of `lim`, one of another user, one with the values the other way round. */
export async function startAttacked(env: Record<string, string> = {}): Promise<Attacked> {
  const api = await startApi(env)
  await createCollections(api)
  const lim = await api.user(grants)
  const other = await api.user([])
  const [hidden, ungranted, behind] = ['hidden', 'ungranted', 'vault'].map(newCanary) as [string, string, string]
  const [vault] = await api.sql('insert into vault (name, content) values ($1, $2) returning id', ['box', behind])
  const insert = async (title: string, by: string, secret: string) => {
    const [row] = await api.sql(
      `insert into note (title, stars, secret, diary, data, "userCreated_Id", "owner_Id", vault_id)
       values ($1, $2, $3, $4, $5, $6, $6, $7) returning id`,
      [title, title.length, secret, ungranted, JSON.stringify({ key: ungranted }), by, vault.id],
    )
    return row.id as string
  }
  const mine = await insert('mine', lim.id, hidden)
  await insert('also mine', lim.id, `z${hidden}`)
  const theirs = await insert('theirs', other.id, hidden)
  const [comment] = await api.sql('insert into comment (text, aside, note_id) values ($1, $2, $3) returning id', [
    'hello',
    ungranted,
    mine,
  ])
  const watched = await watch(api, [hidden, ungranted, behind], env)
  const ids = { mine, other: theirs, otherUser: other.id, vault: vault.id, comment: comment.id }
  const user: Api['user'] = async (permissions) => {
    const made = await api.user(permissions)
    await watched.reload()
    return made
  }
  const canaries = { hidden, ungranted, vault: behind }
  return { api: { ...api, user }, watched, lim, attack: watched.as(lim.token), canaries, ids }
}

/** Another web process on the same database. */
export async function watch(api: Api, canaries: readonly string[], env: Record<string, string>): Promise<Watched> {
  const seen: string[] = []
  const look = (where: string, text: string) => {
    if (canaries.some((canary) => text.includes(canary))) seen.push(where)
  }
  const stream = new Writable({
    write(chunk, _encoding, done) {
      look('log', String(chunk))
      done()
    },
  })
  const config = testConfig(api.database.url, { ...env, SOCKET_ENABLED: 'true', DATABASE_LOGGING: 'true' })
  const runtime = await openRuntime({ config, log: pino({ level: 'trace' }, stream), name: 'watched', worker: false })
  const app = await buildServer(runtime)
  closers.push(async () => {
    await app.close()
    await runtime.close()
  })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  return {
    as: (token) => async (method, path, body, headers) => {
      const answer = await ask(app, method, path, body, {
        ...headers,
        ...(token && { authorization: `Bearer ${token}` }),
      })
      look(`${method} ${path}`, `${answer.text} ${JSON.stringify(answer.headers)}`)
      return answer
    },
    socket: async (token, ...collections) => {
      const socket = await connect(address, token)
      socket.socket.onAny((...frame) => look('frame', JSON.stringify(frame)))
      for (const collection of collections) await socket.subscribe(collection)
      return socket
    },
    reload: () => runtime.access.reload(),
    leaks: () => seen.splice(0),
  }
}

async function ask(
  app: App,
  method: string,
  url: string,
  body: unknown,
  headers: Record<string, string>,
): Promise<Answer> {
  const response = await app.inject({
    method: method as 'GET',
    url,
    headers,
    ...(body !== undefined && { payload: body as object }),
  })
  const isJson = String(response.headers['content-type'] ?? '').includes('json') && response.body !== ''
  return {
    status: response.statusCode,
    body: isJson ? JSON.parse(response.body) : undefined,
    text: response.body,
    headers: response.headers,
  }
}

/** A word of its own for the text search, too. */
export const newCanary = (where: string): string => `canary${where}${randomBytes(6).toString('hex')}`

async function createCollections(api: Api): Promise<void> {
  const schemas = {
    vault: { fields: { name: { type: 'String' }, content: { type: 'Text' } } },
    note: {
      usertrack: true,
      fields: {
        title: { type: 'String' },
        stars: { type: 'Integer' },
        secret: { type: 'String', hidden: true },
        diary: { type: 'Text' },
        data: { type: 'JSON' },
        vault: { relType: 'BelongsTo', target: 'vault', foreignKey: 'vault_id' },
        owner: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'owner_Id' },
      },
    },
    comment: {
      fields: {
        text: { type: 'String' },
        aside: { type: 'String' },
        note: { relType: 'BelongsTo', target: 'note', foreignKey: 'note_id' },
      },
    },
  }
  for (const [collectionName, schema] of Object.entries(schemas)) await create(api, collectionName, schema)
  const comments = { relType: 'HasMany', target: 'comment', foreignKey: 'note_id' }
  const { note } = schemas
  const changed = await api.admin('PATCH', '/schemas/note', {
    schema: { ...note, fields: { ...note.fields, comments } },
  })
  if (changed.status !== 200) throw new Error(`schema refused: ${changed.text}`)
}

async function create(api: Api, collectionName: string, schema: object): Promise<void> {
  const created = await api.admin('POST', '/schemas', { collectionName, schema })
  if (created.status !== 201) throw new Error(`schema refused: ${created.text}`)
}

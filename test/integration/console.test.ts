import { mkdtempSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/adapters/ids.ts'
import { hashSecret, newSecret } from '../../src/adapters/tokens.ts'
import { parseConfig } from '../../src/config/config.ts'
import { sql } from '../../src/db/sql.ts'
import { commit } from '../../src/events/commit.ts'
import { callerOfToken } from '../../src/features/accounts/auth/auth.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { actorOf } from '../../src/http/http.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { createAccount, factsSince, plant, sessionOf } from '../support/accounts.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { bearer, connectMcp } from '../support/mcp.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

/** What the server does for the console alone: the first sign-in, previews of others' rights, saved views. */

let api: Api
beforeAll(async () => {
  api = await startApi({
    SOCKET_ENABLED: 'true',
    REALTIME_ROW_LEVEL_SCOPING: 'true',
    MIGRATIONS_DIR: mkdtempSync(join(tmpdir(), 'daybook-console-')),
    MCP_ENABLED: 'true',
    ...{
      AUTH_SERVICES_ENABLED: 'LOCAL,PASSKEY',
      PASSKEY_RP_ID: 'localhost',
      PASSKEY_RP_NAME: 'Daybook',
      PASSKEY_ORIGIN: 'http://localhost',
    },
  })
})

describe("the first administrator's link", () => {
  it('is made with the administrator, for one of two setups, and stored as a hash', async () => {
    const { url } = await createDatabase()
    const query = (text: string) => withClient(url, async (client) => (await client.query(text)).rows)
    // Past the guard of the last administrator.
    const withoutAccounts = () =>
      query(`alter table "svc_User" disable trigger user; alter table "svc_UserRole" disable trigger user;
        delete from "svc_User";
        alter table "svc_User" enable trigger user; alter table "svc_UserRole" enable trigger user`)
    await withoutAccounts()
    const { ADMIN_PASSWORD: _, ...env } = testEnv(url)
    const setUp = (more = {}) =>
      runSetup(parseConfig({ ...env, ...more }, { requireDatabase: true }), pino({ level: 'fatal' }))

    const both = await Promise.all([setUp(), setUp()])
    const [made, ...others] = both.flatMap(({ admin }) => admin ?? [])
    expect(others).toEqual([])
    expect(made).toEqual({
      email: 'admin@example.com',
      password: expect.stringMatching(/^\S{16,}$/),
      signInToken: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    const stored = await query(`select identifier, value, "expiresAt" between now() + interval '9 minutes'
      and now() + interval '10 minutes' as soon from "svc_Verification"`)
    expect(stored).toEqual([
      { identifier: 'first-sign-in:admin@example.com', value: hashSecret(made!.signInToken!), soon: true },
    ])

    await withoutAccounts()
    expect((await setUp({ CONSOLE_ENABLED: 'false' })).admin).not.toHaveProperty('signInToken')
    await withoutAccounts()
    expect((await setUp({ ADMIN_PASSWORD: 'a password of our own' })).admin).toEqual({
      email: 'admin@example.com',
      password: null,
    })
  })

  it('leaves the password that the administrator has, and says so of another ADMIN_PASSWORD', async () => {
    const { url } = await createDatabase()
    const said = async (more: Readonly<Record<string, string>>) => {
      const lines: { level: number; msg: string }[] = []
      const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(JSON.parse(line)) })
      expect((await runSetup(parseConfig({ ...testEnv(url), ...more }), log)).admin).toBeUndefined()
      return lines.filter(({ msg }) => msg.includes('ADMIN_PASSWORD')).map(({ level, msg }) => [level, msg])
    }
    const unused = expect.stringContaining('ADMIN_PASSWORD has no effect')
    expect(await said({})).toEqual([])
    expect(await said({ ADMIN_PASSWORD: 'a password of our own' })).toEqual([[40, unused]])
    expect(await said({ ADMIN_PASSWORD: 'a password of our own', NODE_ENV: 'production' })).toEqual([[30, unused]])
    expect(await said({ ADMIN_EMAIL: 'somebody.else@example.com' })).toEqual([[40, unused]])
  })

  const use = (token: unknown, password: unknown = 'a new long password') =>
    api.anonymous(
      'POST',
      '/auth/first-sign-in',
      { token, password, authMode: 'cookie' },
      { origin: 'http://localhost:80' },
    )
  const invalid = { status: 400, body: { message: 'Invalid or expired sign-in link' } }

  it('signs in by cookie once, and ends everything else that opens the account', async () => {
    const account = await createAccount(api)
    const old = await sessionOf(api, account)
    const token = await plant(api, 'first-sign-in', account.email)
    const reset = await plant(api, 'password-reset', account.email)
    // A program that only looks at links uses nothing up.
    for (const method of ['GET', 'HEAD'])
      expect((await api.anonymous(method, `/console/welcome?token=${token}`)).headers['set-cookie']).toBeUndefined()
    const before = await api.position()

    const answer = await use(token)
    expect(answer).toMatchObject({ status: 200, body: { authMode: 'cookie', user: { id: account.id } } })
    expect(answer.body).not.toHaveProperty('token')
    const cookie = String(answer.headers['set-cookie']).split(';')[0]!
    expect((await api.anonymous('GET', '/auth/check', undefined, { cookie })).status).toBe(200)
    expect(await factsSince(api, before)).toEqual(['svc_User update', 'svc_User password_change', 'svc_User login'])
    expect((await api.as(old)('GET', '/auth/check')).status).toBe(401)
    expect(
      (await api.anonymous('POST', `/auth/password/reset/${reset}`, { password: 'another long one' })).status,
    ).toBe(400)
    const { status } = await api.anonymous('POST', '/auth/login', {
      email: account.email,
      password: 'a new long password',
    })
    expect(status).toBe(200)
    expect(await use(token)).toMatchObject(invalid)
  })

  it('opens for one of many at once', async () => {
    const { email } = await createAccount(api)
    const token = await plant(api, 'first-sign-in', email)
    const answers = await Promise.all(Array.from({ length: 5 }, () => use(token)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400, 400, 400])
  })

  it('is not used up by a password that does not fit, and ends with a new password', async () => {
    const account = await createAccount(api)
    const token = await plant(api, 'first-sign-in', account.email)
    for (const bad of ['short', '', 7, null]) expect((await use(token, bad)).status).toBe(400)
    const reset = await plant(api, 'password-reset', account.email)
    await api.anonymous('POST', `/auth/password/reset/${reset}`, { password: 'another long one' })
    expect(await use(token)).toMatchObject(invalid)
  })

  it('opens nothing when it is over, unknown, of another kind, or malformed', async () => {
    const { email } = await createAccount(api)
    const over = await plant(api, 'first-sign-in', email, { expires: '-1 second' })
    const link = await plant(api, 'magic-link', email)
    for (const token of [over, link, newSecret(), 'ABCD2345']) expect(await use(token)).toMatchObject(invalid)
    for (const token of [undefined, '', 7, { eq: '' }])
      expect(await use(token)).toMatchObject({ status: 400, body: { message: 'Token and new password are required' } })
    const foreign = await api.anonymous(
      'POST',
      '/auth/first-sign-in',
      { token: newSecret(), password: 'a new long password', authMode: 'cookie' },
      { origin: 'https://evil.test' },
    )
    expect(foreign).toMatchObject({ status: 403, body: { code: 'CROSS_SITE_REQUEST' } })
  })
})

describe('a preview', () => {
  let ada: Awaited<ReturnType<Api['user']>>
  let token: string
  let boss: Call
  const start = (target: object, by = boss) => by('POST', '/auth/preview', target)
  const stop = () => boss('DELETE', '/auth/preview')

  beforeAll(async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'note',
      schema: { usertrack: true, fields: { title: { type: 'String' }, secret: { type: 'String', hidden: true } } },
    })
    ada = await api.user([
      { collection: 'note', action: 'read', fields: ['title'], conditions: { userCreated_Id: '$CURRENT_USER' } },
      { collection: 'note', action: 'create', fields: '*' },
      { collection: 'note', action: 'update', fields: '*' },
      { collection: 'svc_User', action: 'read', fields: ['id', 'firstName'] },
    ])
    await ada.call('POST', '/items/note', { title: 'of Ada' })
    await api.admin('POST', '/items/note', { title: 'of the administrator' })
    token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    boss = api.as(token)
  })
  afterEach(() => api.sql('delete from "svc_Preview"').then(() => stop()))

  const titles = async (by = boss) => (await by('GET', '/items/note?fields=title&sort=id')).body.data

  it('shows what the user would see, on every request of that session alone, and says so in the log', async () => {
    const before = await api.position()
    const seen = '"lastAccess"'
    const lastAccess = () => api.sql(`select ${seen} from "svc_User" where id = $1`, [ada.id])
    const seenBefore = await lastAccess()
    const { status, body } = await start({ user: ada.id })
    expect({ status, body }).toMatchObject({
      status: 200,
      body: { preview: { user: { id: ada.id, email: ada.email }, role: { id: ada.roleId }, tenant: null } },
    })
    expect(await titles()).toEqual([{ title: 'of Ada' }])
    expect((await boss('GET', '/items/note?fields=secret')).status).toBe(403)
    expect((await boss('GET', '/auth/me')).body.user.id).toBe(ada.id)
    expect((await boss('GET', '/auth/preview')).body).toEqual(body)
    expect((await boss('GET', '/permissions/explain?collection=note&action=read&user=x')).status).toBe(403)
    // Another session of the same administrator is not concerned.
    expect(await titles(api.admin)).toHaveLength(2)
    expect((await stop()).body).toEqual({ message: 'Preview stopped' })
    expect(await titles()).toHaveLength(2)
    expect((await boss('GET', '/auth/preview')).body).toEqual({ preview: null })
    expect(await lastAccess()).toEqual(seenBefore)

    const events = (await api.log(before)).map(({ type, action, userId, changes }) => ({
      type,
      action,
      userId,
      changes,
    }))
    const [{ id: admin }] = await api.sql(`select id from "svc_User" where email = $1`, [administrator.email])
    expect(events).toMatchObject([
      { type: 'auth', action: 'preview_started', userId: admin },
      { type: 'auth', action: 'preview_stopped', userId: admin },
    ])
    expect(JSON.stringify(events[0]!.changes)).toContain(ada.id)
  })

  it('refuses every write, and what belongs to the account', async () => {
    const [{ id: note }] = await api.sql('select id from note limit 1')
    const writes: [string, string, unknown?][] = [
      ['POST', '/items/note', { title: 'x' }],
      ['PATCH', `/items/note/${note}`, { title: 'x' }],
      ['PUT', '/items/note', [{ title: 'x' }]],
      ['DELETE', `/items/note/${note}`],
      ['PATCH', '/items/note/bulk', { filter: {}, data: { title: 'x' } }],
      ['POST', '/log/undo', { position: '1' }],
      ['POST', '/schemas', { collectionName: 'other', schema: { fields: {} } }],
      ['POST', '/permissions', { role_Id: ada.roleId, collection: 'note', action: 'delete' }],
      ['POST', '/auth/keys', { name: 'k' }],
      ['POST', '/auth/refresh', {}],
      ['POST', '/auth/password/change', { currentPassword: 'a', newPassword: 'b' }],
      ['POST', '/auth/login', administrator],
      ['POST', '/files', {}],
    ]
    await start({ user: ada.id })
    const before = await api.position()
    for (const [method, path, body] of writes)
      expect([path, (await boss(method, path, body)).status, (await boss(method, path, body)).text]).toEqual([
        path,
        403,
        expect.stringContaining('PREVIEW_READ_ONLY'),
      ])
    for (const path of ['/auth/sessions', '/auth/keys', '/auth/passkey', '/auth/2fa/status'])
      if ((await api.admin('GET', path)).status !== 404)
        expect([path, (await boss('GET', path)).body.code]).toEqual([path, 'PREVIEW_HIDES_THIS'])
    // Reads by POST are reads.
    const report = await boss('POST', '/reports/note', { aggregate: { n: { function: 'count', field: '*' } } })
    expect(report).toMatchObject({ status: 200 })
    expect(report.text).toContain('1')
    expect(await api.log(before)).toEqual([])
    expect(await api.jobs('mail')).toEqual([])
  })

  it('refuses transactions of whatever runs for it', async () => {
    await start({ user: ada.id })
    const request = { caller: await callerOf(token), headers: {}, id: 'r', ip: '127.0.0.1' } as never
    const actor = actorOf(request)
    expect(actor).toMatchObject({ agent: { name: `preview as ${ada.id}` } })
    expect(actor.userId).not.toBe(ada.id)
    const written = commit(api.runtime, actor, async (tx) => ({ result: await tx.any(sql`delete from note`) }))
    await expect(written).rejects.toMatchObject({ status: 403, code: 'PREVIEW_READ_ONLY' })
  })

  const callerOf = async (one: string) => {
    const found = await callerOfToken(api.runtime, one)
    if (typeof found === 'string') throw new Error(found)
    return found.caller
  }

  it('holds for sockets and tools that come with the session', async () => {
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    const socket = await connect(address, token)
    const mcp = await connectMcp(`${address}/mcp`, bearer(token))
    await start({ user: ada.id })
    expect(await socket.subscribe('note')).toMatchObject({ status: 'success' })
    for (const [name, body] of [
      ['custom', { event: 'x' }],
      ['room:join', { room: 'r' }],
      ['room:message', { room: 'r', event: 'said' }],
    ] as const)
      expect([name, await socket.emit(name, body)]).toMatchObject([
        name,
        { status: 'error', code: 'PREVIEW_READ_ONLY' },
      ])
    const listed = await mcp.done('svc_list_items', { collection: 'note', fields: ['title'] })
    expect(JSON.stringify(listed)).not.toContain('of the administrator')
    const written = await mcp
      .call('svc_create_item', { collection: 'note', data: { title: 'x' } })
      .catch((error) => error)
    expect(written.isRefused ?? written.message).toBeTruthy()
    // The socket was told, too: what the administrator alone may read does not come any more.
    await api.sql(`insert into note (title) values ('nobody''s')`)
    await ada.call('POST', '/items/note', { title: 'of Ada, later' })
    const frame = await socket.frame(({ collection }) => collection === 'note')
    expect(frame.data.title ?? frame.data.item?.title).toBe('of Ada, later')
    expect(await api.sql(`select from note where title = 'x'`)).toEqual([])
    await api.sql(`delete from note where title in ('nobody''s', 'of Ada, later')`)
    await stop()
    // It is told when everybody is.
    await waitFor(async () => (await socket.emit('room:join', { room: 'r' })).status === 'success')
    socket.close()
  })

  it('is of a role as well: the administrator in it, or a stranger', async () => {
    const [{ name }] = await api.sql('select name from "svc_Role" where id = $1', [ada.roleId])
    await start({ role: name })
    expect(await titles()).toEqual([{ title: 'of the administrator' }])
    expect((await boss('POST', '/items/note', { title: 'x' })).body.error.code).toBe('PREVIEW_READ_ONLY')
    await start({ role: 'public' })
    expect((await boss('GET', '/items/note')).status).toBe(403)
    expect((await boss('GET', '/auth/me')).status).toBe(401)
    expect((await boss('POST', '/auth/logout')).status).toBe(200)
    expect((await boss('GET', '/auth/check')).status).toBe(401)
    token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    boss = api.as(token)
  })

  it('shows nothing when it can show nothing true, and never turns into the own view', async () => {
    const bo = await api.user([{ collection: 'note', action: 'read', fields: '*' }])
    await start({ user: bo.id })
    expect(await titles()).toHaveLength(2)
    await api.admin('PATCH', `/items/svc_User/${bo.id}`, { status: 'suspended' })
    expect((await boss('GET', '/items/note')).status).toBe(403)
    await api.admin('DELETE', `/items/svc_User/${bo.id}`)
    expect((await boss('GET', '/items/note')).status).toBe(403)
    expect((await boss('DELETE', `/items/note/1`)).body.error.code).toBe('PREVIEW_READ_ONLY')
    expect((await boss('GET', '/auth/preview')).body.preview).toMatchObject({ user: null, role: null })
    expect((await start({ user: bo.id })).status).toBe(404)
  })

  it('is for administrators with a session, of a user who could sign in', async () => {
    expect((await start({ user: ada.id }, ada.call)).status).toBe(403)
    expect((await start({ user: ada.id }, api.anonymous)).status).toBe(401)
    const { body } = await api.admin('POST', '/auth/keys', { name: 'k' })
    expect((await start({ user: ada.id }, api.as(body.key))).status).toBe(403)
    for (const [target, status] of [
      [{}, 400],
      [{ user: ada.id, role: 'user' }, 400],
      [{ user: 7 }, 400],
      [{ user: 'nobody' }, 404],
      [{ user: newId() }, 404],
      [{ role: 'nothing' }, 404],
    ] as const)
      expect([target, (await start(target)).status]).toEqual([target, status])
    expect((await boss('GET', '/auth/preview')).body).toEqual({ preview: null })
  })

  it('ends when the owner is no administrator any more, without giving the own view back', async () => {
    const [{ id: role }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const other = await createAccount(api)
    await api.sql(`update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1`, [other.id, role])
    const theirs = api.as(await sessionOf(api, other))
    await start({ user: ada.id }, theirs)
    expect(await titles(theirs)).toEqual([{ title: 'of Ada' }])
    await api.sql(`update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1`, [other.id, ada.roleId])
    expect((await theirs('GET', '/items/note')).status).toBe(403)
    expect((await theirs('DELETE', '/auth/preview')).status).toBe(200)
    expect(await titles(theirs)).toEqual([])
  })
})

describe('a change of a collection as a migration', () => {
  it('is written as a file that does it and its reverse, and changes nothing', async () => {
    const schema = { fields: { title: { type: 'String' }, tags: { type: 'JSON' } } }
    const { status, body } = await api.admin('POST', '/schemas?migration=add%20poems', {
      collectionName: 'poem',
      schema,
    })
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        dryRun: true,
        changes: [{ collection: 'poem', change: 'create' }],
        migration: expect.stringMatching(/_add_poems\.ts$/),
      },
    })
    expect(body).not.toHaveProperty('before')
    expect(body.sql.join(' ')).toContain('create table')
    expect((await api.admin('GET', '/schemas/poem')).status).toBe(404)
    const file = await readFile(body.migration, 'utf8')
    expect(file).toContain("export const type = 'schema'")

    const ran = await api.admin('POST', '/migrations/run', {})
    expect(ran.body.data.summary).toMatchObject({ completed: 1, failed: 0 })
    const made = await api.admin('GET', '/schemas/poem')
    expect(Object.keys(made.body.data.schema.fields)).toEqual(expect.arrayContaining(['title', 'tags']))
    expect((await api.admin('POST', '/items/poem', { title: 'x' })).status).toBe(201)

    const ranked = { schema: { fields: { rank: { type: 'Integer' }, title: null } } }
    const shown = await api.admin('PATCH', '/schemas/poem?dryRun=true&migration=rank%20poems', ranked)
    expect(shown.body).toMatchObject({ dryRun: true, migration: expect.stringMatching(/^\d{14}_rank_poems\.ts$/) })
    expect(shown.body.script).toContain('"rank": {')
    expect((await api.admin('GET', '/migrations/pending')).body.data).toEqual([])
    const changed = await api.admin('PATCH', '/schemas/poem?migration=rank%20poems', ranked)
    expect(changed.body).not.toHaveProperty('script')
    expect(changed.body).toMatchObject({ dropped: [{ collection: 'poem', field: 'title', values: 1 }] })
    const { version } = (await api.admin('GET', '/migrations/pending')).body.data[0]
    await api.admin('POST', '/migrations/run', {})
    expect((await api.admin('GET', '/items/poem')).body.data[0]).toMatchObject({ rank: null })
    expect((await api.admin('POST', `/migrations/rollback/${version}`, {})).body.data.status).toBe('rolled_back')
    expect((await api.admin('GET', '/items/poem')).body.data[0]).toMatchObject({ title: null })
  })

  it('is refused without a change, with a bad name, and to others', async () => {
    const nothing = { schema: { fields: {} } }
    expect((await api.admin('PATCH', '/schemas/note?migration=nothing', nothing)).status).toBe(400)
    const some = { schema: { fields: { more: { type: 'String' } } } }
    for (const name of ['../x', 'a/b', '%00', '%20'])
      expect([name, (await api.admin('PATCH', `/schemas/note?migration=${name}`, some)).status]).toEqual([name, 400])
    const user = await api.user()
    expect((await user.call('PATCH', '/schemas/note?migration=x', some)).status).toBe(403)
    expect((await api.admin('GET', '/schemas/note')).body.data.schema.fields).not.toHaveProperty('more')
  })
})

describe('the log explorer', () => {
  it('counts events by their values, each facet without its own filter, and over time', async () => {
    const user = await api.user([{ collection: 'note', action: 'create', fields: '*' }])
    // The user's sign-in is an event too, and the times asked for have milliseconds.
    const signedIn = Date.now()
    const from = await waitFor(() => Date.now() > signedIn && new Date().toISOString())
    for (let i = 0; i < 3; i += 1) await user.call('POST', '/items/note', { title: `${i}` })
    await api.admin('POST', '/items/note', { title: 'of the administrator' }, { 'x-svc-agent': 'explorer' })
    await api.admin('PATCH', '/settings', { title: 'Explored' })
    const to = new Date(Date.now() + 1000).toISOString()
    const ask = async (query: Record<string, string> = {}) =>
      (await api.admin('GET', `/log/facets?${new URLSearchParams({ from, to, buckets: '10', ...query })}`)).body.data
    const all = await ask()
    expect(all).toMatchObject({ complete: true, since: from, from, to })
    expect(all.histogram).toHaveLength(10)
    expect(all.histogram.reduce((sum: number, { events }: { events: number }) => sum + events, 0)).toBe(all.events)
    expect(all.facets.collection).toContainEqual({ value: 'note', events: 4 })
    expect(all.facets.actor).toContainEqual({ value: user.id, events: 3 })
    expect(all.facets.agent).toContainEqual({ value: 'explorer', events: 1 })
    const ofUser = await ask({ actor: user.id })
    expect(ofUser).toMatchObject({ events: 3, facets: { collection: [{ value: 'note', events: 3 }] } })
    expect(ofUser.facets.actor).toContainEqual({ value: user.id, events: 3 })
    expect(ofUser.facets.actor.length).toBeGreaterThan(1)
    expect((await ask({ actor: user.id, collection: 'svc_Settings' })).events).toBe(0)
  })

  it('shows no more of the log than the permission to read it', async () => {
    const reader = await api.user([
      {
        collection: 'svc_AuditLog',
        action: 'read',
        fields: ['id', 'entity', 'createdAt'],
        conditions: { entity: 'note' },
      },
    ])
    const { body } = await reader.call('GET', '/log/facets')
    expect(Object.keys(body.data.facets)).toEqual(['collection'])
    expect(body.data.facets.collection.map(({ value }: { value: string }) => value)).toEqual(['note'])
    expect((await reader.call('GET', `/log/facets?actor=${newId()}`)).status).toBe(403)
    const timeless = await api.user([{ collection: 'svc_AuditLog', action: 'read', fields: ['id', 'entity'] }])
    expect(await timeless.call('GET', '/log/facets')).toMatchObject({
      status: 403,
      body: { error: { message: "You don't have permission to read field: createdAt" } },
    })
    expect((await (await api.user()).call('GET', '/log/facets')).status).toBe(403)
    expect((await api.anonymous('GET', '/log/facets')).status).toBe(401)
    for (const bad of [
      'from=x',
      'actor=x',
      'buckets=0',
      'buckets=501',
      'from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z',
    ])
      expect([bad, (await api.admin('GET', `/log/facets?${bad}`)).status]).toEqual([bad, 400])
  })

  it('finds the moments of changes, whole transactions each, for reads of the past', async () => {
    const ask = async (query: Record<string, string>) =>
      (await api.admin('GET', `/log/moments?${new URLSearchParams({ collections: 'note', ...query })}`)).body.data
    const { id } = (await api.admin('POST', '/items/note', { title: 'first' })).body.data
    await api.admin('POST', '/items/note/bulk', [{ title: 'of two' }, { title: 'of two' }])
    await api.admin('PATCH', `/items/note/${id}`, { title: 'last' })
    const titlesAt = async (asOf: string) =>
      (
        await api.admin(
          'GET',
          `/items/note?${new URLSearchParams({ asOf, filter: JSON.stringify({ title: { in: ['first', 'of two', 'last'] } }), sort: 'title' })}`,
        )
      ).body.data.map(({ title }: { title: string }) => title)
    const last = await ask({})
    expect(last).toMatchObject({ after: null })
    expect(await titlesAt(last.at)).toEqual(['last', 'of two', 'of two'])
    const both = await ask({ at: last.at })
    expect(both.at).toBe(last.at)
    expect(await titlesAt(both.before)).toEqual(['first', 'of two', 'of two'])
    const first = await ask({ at: both.before })
    expect(first).toMatchObject({ at: both.before, after: last.at })
    expect(await titlesAt(first.before)).toEqual(['first'])
    // Between two changes the earlier one is what is there, and what comes before.
    const between = new Date(Date.parse(last.at) - 1).toISOString()
    const amid = await ask({ at: between })
    expect(amid.after).toBe(last.at)
    expect([amid.at, amid.before]).toContain(first.at)
    const later = new Date(Date.parse(last.at) + 1000).toISOString()
    expect(await ask({ at: later })).toEqual({ at: last.at, before: last.at, after: null })
    // Milliseconds name the change of that millisecond.
    expect((await ask({ at: `${last.at.slice(0, 23)}999Z` })).before).toBe(first.at)
    expect(await ask({ item: String(id), at: last.at })).toEqual({ at: last.at, before: first.before, after: null })
    expect(await ask({ at: '2001-01-01T00:00:00Z' })).toMatchObject({ at: null, before: null })
    const { oldest, time } = (await api.admin('GET', '/history/now')).body.data
    expect(oldest < time).toBe(true)
    expect((await api.admin('GET', `/items/note?asOf=${oldest}`)).status).toBe(200)

    const reader = await api.user([
      {
        collection: 'svc_AuditLog',
        action: 'read',
        fields: ['id', 'entity', 'createdAt'],
        conditions: { entity: 'tag' },
      },
    ])
    const { body } = await reader.call('GET', '/log/moments?collections=note')
    expect(body.data).toEqual({ at: null, before: null, after: null })
    expect((await reader.call('GET', `/log/moments?collections=note&item=${id}`)).status).toBe(403)
    expect((await (await api.user()).call('GET', '/log/moments?collections=note')).status).toBe(403)
    expect((await api.anonymous('GET', '/log/moments?collections=note')).status).toBe(401)
    for (const bad of ['', 'collections=', 'collections=note&at=x', 'collections=note,tag&item=1'])
      expect([bad, (await api.admin('GET', `/log/moments?${bad}`)).status]).toEqual([bad, 400])
  })

  it('tells what became of a request', async () => {
    const account = await createAccount(api)
    const { headers, status } = await api.anonymous('POST', '/auth/password/reset', {
      email: account.email,
      mode: 'code',
    })
    expect(status).toBe(200)
    await afterwardsDone(api.runtime)
    const id = String(headers['x-request-id'])
    const { body } = await api.admin('GET', `/log/requests/${id}/effects`)
    expect(body.data).toMatchObject({
      requests: [id],
      mails: [{ request: id, template: 'password_reset', email: account.email, status: 'queued', sentAt: null }],
      jobs: [{ queue: 'mail', state: 'created' }],
      deliveries: [],
    })
    expect(body.data.jobs[0].mail).toBe(body.data.mails[0].id)
    expect((await api.admin('GET', `/log/requests/${newId()}/effects`)).status).toBe(404)
    expect((await api.admin('GET', '/log/requests/x/effects')).status).toBe(404)
    expect((await (await api.user()).call('GET', `/log/requests/${id}/effects`)).status).toBe(403)
  })
})

describe('saved views', () => {
  const view = {
    name: 'Overdue',
    page: 'data',
    collection: 'note',
    query: { filter: { title: 'x' }, columns: ['title'] },
  }

  it('are kept for the user who saves them, and shared with a role by administrators', async () => {
    const [ada, bo] = [await api.user(), await api.user()]
    const before = await api.position()
    const { status, body } = await ada.call('POST', '/views', view)
    expect({ status, body }).toMatchObject({ status: 201, body: { data: { ...view, role_Id: null, isOwn: true } } })
    expect(await factsSince(api, before)).toEqual(['svc_View create'])
    expect((await ada.call('GET', '/views?page=data&collection=note')).body.data).toEqual([body.data])
    expect((await ada.call('GET', '/views?page=log')).body.data).toEqual([])
    expect((await bo.call('GET', '/views')).body.data).toEqual([])
    for (const path of [`/views/${body.data.id}`, '/views/x']) {
      expect((await bo.call('PATCH', path, { name: 'mine' })).status).toBe(404)
      expect((await bo.call('DELETE', path)).status).toBe(404)
    }
    const shared = await api.admin('POST', '/views', { ...view, name: 'For all', role_Id: bo.roleId })
    const seen = (await bo.call('GET', '/views')).body.data
    expect(seen).toMatchObject([{ name: 'For all', isOwn: false, role_Id: bo.roleId }])
    expect((await bo.call('PATCH', `/views/${seen[0].id}`, { name: 'mine' })).status).toBe(403)
    expect((await ada.call('GET', '/views')).body.data).toHaveLength(1)

    const renamed = await ada.call('PATCH', `/views/${body.data.id}`, { name: 'Late', collection: null })
    expect(renamed.body.data).toMatchObject({ name: 'Late', collection: null, query: view.query })
    expect((await ada.call('DELETE', `/views/${body.data.id}`)).status).toBe(204)
    await api.admin('PATCH', `/views/${shared.body.data.id}`, { role_Id: null })
    expect((await bo.call('GET', '/views')).body.data).toEqual([])
  })

  it('refuses what is no view, and rows of it by other ways', async () => {
    const user = await api.user([{ collection: 'svc_View', action: 'read', fields: '*' }])
    const refused: [object, number][] = [
      [{}, 400],
      [{ ...view, name: ' ' }, 400],
      [{ ...view, query: 'x' }, 400],
      [{ ...view, query: { long: 'x'.repeat(17_000) } }, 413],
      [{ ...view, role_Id: user.roleId }, 403],
    ]
    for (const [body, status] of refused)
      expect({ body, status: (await user.call('POST', '/views', body)).status }).toEqual({ body, status })
    expect((await api.admin('POST', '/views', { ...view, role_Id: newId() })).status).toBe(404)
    expect((await api.anonymous('GET', '/views')).status).toBe(401)
    expect((await api.admin('POST', '/items/svc_View', view)).status).toBe(403)
  })
})

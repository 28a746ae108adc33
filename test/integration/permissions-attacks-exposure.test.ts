import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { Call } from '../support/api.ts'
import { type Attacked, startAttacked, type Watched, watch } from '../support/canary.ts'
import { configured } from '../support/configured.ts'

/** What leaves the system: secrets, descriptions, long lists, frames. */

let on: Attacked
beforeAll(async () => {
  on = await startAttacked()
})

afterEach(() => {
  expect(on.watched.leaks()).toEqual([])
})

const parameters = (values: Readonly<Record<string, unknown>>) =>
  new URLSearchParams(
    Object.entries(values).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )

describe('P-06 secrets are never shown', () => {
  const secrets: [string, string][] = [
    ['svc_User', 'password'],
    ['svc_Sessions', 'token'],
    ['svc_Account', 'accessToken'],
    ['svc_Account', 'refreshToken'],
    ['svc_Account', 'idToken'],
    ['svc_Account', 'password'],
    ['svc_Verification', 'value'],
    ['svc_Invite', 'token'],
    ['svc_Settings', 'smtp_pass'],
    ['note', 'secret'],
  ]
  let readers: [string, Call][]
  /** Its readers may see what `lim` may not, but nothing hidden. */
  let watched: Watched

  afterEach(() => {
    expect(watched.leaks()).toEqual([])
  })

  beforeAll(async () => {
    watched = await watch(on.api, [on.canaries.hidden], {})
    const secret = on.canaries.hidden
    const { otherUser } = on.ids
    await on.api.sql(`insert into "svc_Verification" (identifier, value, "expiresAt") values ('x', $1, now())`, [
      secret,
    ])
    await on.api.sql('update "svc_Settings" set smtp_pass = $1', [secret])
    await on.api.sql(
      `insert into "svc_Account" ("user_Id", "accountId", "providerId", "accessToken", "refreshToken", "idToken", password)
       values ($1, 'a', 'b', $2, $2, $2, $2)`,
      [otherUser, secret],
    )
    await on.api.sql(
      `insert into "svc_Invite" (email, "role_Id", token, "expiresAt", "invitedBy_Id") values ('i@example.com', $1, $2, now(), $3)`,
      [on.lim.roleId, secret, otherUser],
    )
    const everything = await on.api.user(
      [...new Set(secrets.map(([collection]) => collection)), 'svc_UserRole', 'svc_Role', 'svc_AuditLog'].map(
        (collection) => ({ collection, action: 'read', fields: ['*', '*.*', '*.*.*'] }),
      ),
    )
    const { token } = (
      await on.api.anonymous('POST', '/auth/login', {
        email: 'admin@example.com',
        password: 'correct horse battery staple',
      })
    ).body
    readers = [
      ['a role with every grant', watched.as(everything.token)],
      ['an administrator', watched.as(token)],
    ]
    // Last, so that no session of the above ends with it.
    await on.api.sql('update "svc_User" set password = $1 where id = $2', [secret, otherUser])
    await on.api.sql(`update "svc_Sessions" set token = $1 where "user_Id" = $2`, [secret, otherUser])
  })

  it.each(secrets)('%s.%s, whatever is asked for', async (collection, field) => {
    for (const [who, call] of readers) {
      for (const fields of ['*', '*.*', '*.*.*', '**', '*,-id']) {
        const { status, text } = await call('GET', `/items/${collection}?${parameters({ fields })}`)
        expect([who, fields, [200, 400].includes(status)]).toEqual([who, fields, true])
        expect(text).not.toContain(`"${field}"`)
      }
      for (const query of [
        { fields: field },
        { fields: `*,${field}` },
        { filter: { [field]: { isNotNull: true } } },
        { sort: field },
        { search: on.canaries.hidden, searchFields: [field] },
        { groupBy: [field] },
        { aggregate: { n: { function: 'max', field } } },
      ]) {
        const { status, body } = await call('GET', `/items/${collection}?${parameters(query)}`)
        expect([who, query, status, body.data]).toEqual([who, query, 403, undefined])
      }
    }
  })

  it.each([
    ['svc_UserRole', 'user.password'],
    ['svc_Role', 'userRoles.user.password'],
    ['svc_Sessions', 'user.password'],
    ['svc_AuditLog', 'user.password'],
    ['note', 'owner.password'],
    ['note', 'owner.userRoles.user.password'],
  ])('from %s by %s', async (collection, field) => {
    for (const [, call] of readers)
      expect((await call('GET', `/items/${collection}?${parameters({ fields: field })}`)).status).toBe(403)
  })

  it('in the log, neither as it was nor as it is', async () => {
    const { hidden } = on.canaries
    for (const [table, field] of secrets)
      for (const values of [
        ['changed', hidden],
        [hidden, 'changed'],
      ])
        await on.api.sql(`update "${table}" set "${field}" = $1 where "${field}" = $2`, values)
    for (const [who, call] of readers) {
      const answer = await call('GET', '/items/svc_AuditLog?fields=entity,changes')
      expect([who, answer.status]).toEqual([who, 200])
      expect(answer.body.data.length).toBeGreaterThan(10)
    }
  })

  it('in what the sign-in routes answer', async () => {
    const me = await on.api.user([{ collection: 'svc_User', action: 'read', fields: ['*'] }])
    const call = on.watched.as(me.token)
    for (const path of ['/auth/me', '/auth/check']) {
      const answer = await call('GET', path)
      expect(answer.status).toBe(200)
      expect(answer.text).not.toMatch(/"password"|"sessionToken"|b1:/)
    }
  })
})

describe('P-21 descriptions', () => {
  it('name no hidden field to anybody but administrators', async () => {
    for (const call of [on.attack, on.watched.as()]) {
      const all = await call('GET', '/schemas')
      expect(all.status).toBe(200)
      expect(all.text).not.toMatch(/"secret"|"password"|"smtp_pass"|"accessToken"|"claimToken"/)
      expect((await call('GET', '/schemas/note')).text).not.toContain('"secret"')
    }
  })

  it('are closed to those without a permission when SCHEMAS_PUBLIC is off', async () => {
    const app = await configured(on.api.database, { SCHEMAS_PUBLIC: 'false' })
    for (const authorization of [undefined, `Bearer ${on.lim.token}`])
      for (const url of ['/schemas', '/schemas/note', '/schemas/nothing']) {
        const answer = await app.inject({ url, headers: { ...(authorization && { authorization }) } })
        expect([url, answer.statusCode]).toEqual([url, 403])
        expect(answer.body).not.toContain('"fields"')
      }
  })
})

describe('P-24 long lists', () => {
  it('follow the same rules as short ones, streamed or not', async () => {
    await on.api.sql(
      `insert into note (title, diary, secret, "userCreated_Id")
       select 'many ' || i, $1, $2, case when i % 2 = 0 then $3::uuid else $4::uuid end from generate_series(1, 3000) i`,
      [on.canaries.ungranted, on.canaries.hidden, on.lim.id, on.ids.otherUser],
    )
    const ask = (query: object) => on.attack('GET', `/items/note?${parameters({ sort: 'id', ...query })}`)
    const [streamed, all] = [await ask({ limit: '-1' }), await ask({})]
    expect(streamed.body.totalCount).toBe(1502)
    expect(streamed.body.data).toHaveLength(1502)
    expect(all.text).toBe(streamed.text)
    const whole = [await ask({ limit: '1000' }), await ask({ limit: '1000', page: '2' })]
    expect(whole.flatMap(({ body }) => body.data)).toEqual(streamed.body.data)
    expect(Object.keys(streamed.body.data[0]).sort()).toEqual(['id', 'owner_Id', 'stars', 'title', 'userCreated_Id'])
    expect(new Set(streamed.body.data.map((note: { userCreated_Id: string }) => note.userCreated_Id))).toEqual(
      new Set([on.lim.id]),
    )
    for (const fields of ['secret', 'diary', 'vault.content'])
      expect((await ask({ limit: '-1', fields })).status).toBe(403)
    const nested = await ask({ limit: '-1', fields: 'title,*.*' })
    expect(nested.status).toBe(200)
  })
})

describe('P-28 options that are not the caller’s', () => {
  const smuggled = [
    'includeHidden',
    'hidden',
    'bypassPermissions',
    'accountability',
    'transaction',
    '_isAdmin',
    'isAdmin',
    'admin',
    'access',
    'role',
    'role_Id',
    'tenant',
    'tenantId',
    'tenant_Id',
    'includeDeleted',
    'multiTenant',
    'ofRequest',
    'full',
    'editMode',
    'constructor',
    '__proto__',
  ]

  it('in a query string are refused, or ignored where clients send them', async () => {
    const ignored = ['_isAdmin', 'tenant', 'tenant_Id', 'full', 'editMode', '__proto__']
    const plain = await on.attack('GET', '/items/note?limit=3&sort=id')
    for (const name of smuggled)
      for (const value of ['true', '1', '{"admin":true}', on.ids.otherUser]) {
        const forms = [`${name}=${value}`, `${name}[admin]=true`, `${name}[]=${value}`]
        for (const form of forms) {
          const answer = await on.attack('GET', `/items/note?limit=3&sort=id&${form}`)
          expect([form, answer.status]).toEqual([form, ignored.includes(name) ? 200 : 400])
          if (ignored.includes(name)) expect(answer.text).toBe(plain.text)
          else expect(answer.body.error).toMatchObject({ code: 'UNKNOWN_PARAMETER' })
        }
      }
  })

  it('in a filter are names that do not exist', async () => {
    for (const name of smuggled.filter((one) => one !== '__proto__')) {
      const answer = await on.attack('GET', `/items/note?${parameters({ filter: { [name]: true } })}`)
      expect([name, answer.status]).toEqual([name, 400])
    }
    const prototype = await on.attack('GET', `/items/note?filter=${encodeURIComponent('{"__proto__":{"admin":true}}')}`)
    expect(prototype.status).toBe(400)
  })

  it('in a payload and in headers are ignored', async () => {
    const writer = await on.api.user([{ collection: 'note', action: 'create', fields: ['title'] }])
    const call = on.watched.as(writer.token)
    const extra = Object.fromEntries(smuggled.filter((name) => name !== '__proto__').map((name) => [name, true]))
    expect((await call('POST', '/items/note?bypassPermissions=true', { title: 'smuggled' })).status).toBe(400)
    const made = await call('POST', '/items/note', { title: 'smuggled', ...extra })
    expect(made.status).toBe(201)
    const [row] = await on.api.sql('select * from note where id = $1', [made.body.data.id])
    expect(row).toMatchObject({ title: 'smuggled', userCreated_Id: writer.id })
    const refused = await call('POST', '/items/note', { title: 'x', stars: 1, bypassPermissions: true })
    expect(refused.status).toBe(403)
    const headers = { 'x-tenant-id': on.ids.otherUser, 'x-role': 'administrator', 'x-admin': 'true', 'x-user-id': 'x' }
    expect((await call('GET', '/items/note', undefined, headers)).status).toBe(403)
    expect((await call('GET', '/items/note?access_token=x', undefined, headers)).status).toBe(403)
    expect((await call('GET', '/items/note?token=x', undefined, headers)).status).toBe(400)
  })

  it('in a subscription are ignored', async () => {
    const socket = await on.watched.socket(on.lim.token)
    for (const name of smuggled)
      await socket.emit('subscribe', { collection: 'note', [name]: true, fields: ['*', 'secret'], filter: {} })
    await socket.subscribe('note')
    const { id } = (await on.api.admin('POST', '/items/note', { title: 'frame', diary: on.canaries.ungranted })).body
      .data
    await on.api.sql('update note set "userCreated_Id" = $1, secret = $2 where id = $3', [
      on.lim.id,
      on.canaries.hidden,
      id,
    ])
    await on.api.sql('delete from note where id = $1', [id])
    const last = await socket.frame((frame) => frame.action === 'delete' && frame.data.id === id)
    expect(Object.keys(last.data).sort()).toEqual(['id', 'owner_Id', 'stars', 'title', 'userCreated_Id'])
    for (const frame of socket.frames) expect(JSON.stringify(frame)).not.toMatch(/"secret"|"diary"/)
  })
})

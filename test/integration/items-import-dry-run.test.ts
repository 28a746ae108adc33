import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/log.ts'
import { administrator } from '../support/prepare.ts'
import { formOf, upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** What an import would do (`dryRun=true`), and imports that are broken off (docs/import-export.md). */

let api: Api
let admin: string

beforeAll(async () => {
  api = await startApi()
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const maker = { code: { type: 'String', primaryKey: true }, name: { type: 'String' } }
  const gear = {
    id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
    sku: { type: 'String', unique: true },
    name: { type: 'String', allowNull: false },
    stock: { type: 'Integer', validate: { min: 0 } },
    secret: { type: 'String', hidden: true, unique: true },
    maker: { relType: 'BelongsTo', target: 'maker', foreignKey: 'maker_code' },
  }
  for (const [collectionName, fields] of Object.entries({ maker, gear }))
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).text).toMatch(/success/)
  await api.admin('POST', '/items/maker', { code: '007', name: 'Bond' })
  await api.admin('POST', '/items/gear', { sku: 'taken', name: 'x', secret: 'canary' })
})

const post = (kind: 'csv' | 'json', content: string, query = '?dryRun=true', token = admin, collection = 'gear') =>
  upload(api, token, `/items/${collection}/import-${kind}${query}`, [
    { name: `${kind}File`, filename: `rows.${kind}`, content },
  ])

/** Everything that a write leaves: rows, events, jobs, notifications. */
async function traces() {
  const [rows] = await api.sql(
    `select (select count(*)::int from gear) as gear, (select count(*)::int from maker) as maker,
       (select count(*)::int from "svc_User") as users, (select count(*)::int from "svc_Notification") as notices,
       (select count(*)::int from "svc_EmailLog") as mails, (select count(*)::int from "svc_IdempotencyKey") as keys,
       (select count(*)::int from pgboss.job) as jobs`,
  )
  return { ...rows, position: await api.position() }
}

describe('a dry run', () => {
  it('is asked for in the form too, as the encoding is', async () => {
    const before = await traces()
    const field = (name: string, value: string) => ({ name, value })
    const send = (content: Buffer, fields: readonly { name: string; value: string }[], query = '') =>
      upload(api, admin, `/items/gear/import-csv${query}`, [
        ...fields,
        { name: 'csvFile', filename: 'rows.csv', content },
      ])
    const plain = Buffer.from('sku,name\nf,F\n')
    const tried = { status: 200, body: { dryRun: true, results: { wouldCreate: 1 } } }
    expect(await send(plain, [field('dryRun', 'true')])).toMatchObject(tried)
    expect(await send(plain, [field('dryRun', 'false')], '?dryRun=true')).toMatchObject(tried)
    expect((await send(plain, [field('dryRun', 'yes')])).status).toBe(400)
    const latin = Buffer.from('sku,name\nf,caf\xe9\n', 'latin1')
    expect((await send(latin, [field('dryRun', 'true')])).status).toBe(400)
    const named = [field('dryRun', 'true'), field('encoding', 'windows-1252')]
    expect(await send(latin, named)).toMatchObject(tried)
    expect(await traces()).toEqual(before)
  })

  it('says what would be done, and does nothing', async () => {
    const before = await traces()
    const { status, body } = await post('csv', 'sku,name,maker\na,A,007\nb,B,\n')
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        success: true,
        dryRun: true,
        message: '2 items can be imported',
        results: {
          ...{ rows: 2, complete: true, wouldCreate: 2, wouldUpdate: 0, failed: 0, errors: [], skipsHooks: false },
          changes: [{ collection: 'gear', create: 2, update: 0 }],
        },
      },
    })
    expect(await traces()).toEqual(before)
    expect(await post('csv', 'sku,name,maker\na,A,007\n', '?dryRun=false')).toMatchObject({
      body: { results: { imported: 1 } },
    })
  })

  it('counts what nested rows create and change', async () => {
    const before = await traces()
    const items = [{ sku: 'n1', name: 'N', maker: { code: '007', name: 'James' } }]
    const { body } = await post('json', JSON.stringify(items))
    expect(body.results).toMatchObject({
      ...{ wouldCreate: 1, wouldUpdate: 1 },
      changes: [
        { collection: 'gear', create: 1, update: 0 },
        { collection: 'maker', create: 0, update: 1 },
      ],
    })
    expect(await traces()).toEqual(before)
    expect((await api.admin('GET', '/items/maker/007')).body.data.name).toBe('Bond')
  })

  it('names each broken row with its line and its fields, hidden ones never', async () => {
    const before = await traces()
    const file =
      'sku,name,stock,maker\n' + // line 1
      'good,ok,1,\n' +
      'e1,"of\ntwo lines",-1,\n' +
      '\n' +
      'e2,ok,many,\n' + // line 6
      'taken,ok,1,\n' +
      'good,again,1,\n' +
      'e3,ok,1,nobody\n' +
      'e4,,1,\n'
    const { status, body } = await post('csv', file)
    expect({ status, body }).toMatchObject({
      status: 200,
      body: {
        success: false,
        dryRun: true,
        message: '6 of 7 items have errors',
        results: { failed: 6, wouldCreate: 1 },
      },
    })
    type Broken = { row: number; line: number; fields: { field: string }[] }
    const found = body.results.errors.map(({ row, line, fields }: Broken) => [
      row,
      line,
      fields.map(({ field }) => field),
    ])
    expect(found).toEqual([
      [2, 3, ['stock']],
      [3, 6, ['stock']],
      [4, 7, ['sku']],
      [5, 8, ['sku']],
      [6, 9, ['maker']],
      [7, 10, ['name']],
    ])
    const secret = await post('json', '[\n {"sku":"s","name":"s","secret":"canary"}\n]')
    expect(secret.body.results.errors).toMatchObject([{ item: 1, line: 2, fields: [] }])
    expect(secret.text).not.toContain('canary')
    expect(await traces()).toEqual(before)
  })

  it('answers a file that cannot be read, and a caller who may not, as an import does', async () => {
    const before = await traces()
    for (const file of ['', 'sku,name\nx', 'sku,name\nx,"y'])
      expect([file, (await post('csv', file)).status]).toEqual([file, 400])
    expect((await post('csv', 'sku,name\nx,y', '?dryRun=perhaps')).status).toBe(400)
    const user = await api.user([{ collection: 'gear', action: 'create', fields: ['sku', 'name'] }])
    expect((await post('csv', 'code\nx', '?dryRun=true', user.token, 'maker')).status).toBe(403)
    const { body } = await post('csv', 'sku,name,stock\nx,y,1', '?dryRun=true', user.token)
    expect(body.results.errors).toMatchObject([{ row: 1, error: "You don't have permission to create field: stock" }])
    expect((await upload(api, undefined, '/items/gear/import-csv?dryRun=true', [])).status).toBe(401)
    expect(await traces()).toMatchObject({
      gear: before.gear,
      maker: before.maker,
      jobs: before.jobs,
      mails: before.mails,
    })
  })

  it('calls no hook, and says so where there is one; sends nothing for accounts', async () => {
    const { hooks } = api.runtime
    const called: string[] = []
    for (const event of ['items.create', 'items.create.after'])
      hooks.register('test', 'maker', event, () => void called.push(event))
    const before = await traces()
    const { body } = await post('csv', 'code,name\nh1,H', '?dryRun=true', admin, 'maker')
    expect(body.results).toMatchObject({ wouldCreate: 1, skipsHooks: true })
    const user = { firstName: 'I', email: 'dry@example.com', password: 'long enough password' }
    const users = await post('json', JSON.stringify([user]), '?dryRun=true', admin, 'svc_User')
    expect(users.body).toMatchObject({ success: true })
    expect(called).toEqual([])
    expect(await traces()).toEqual(before)
    await post('csv', 'code,name\nh1,H', '', admin, 'maker')
    expect(called).toEqual(['items.create', 'items.create.after'])
  })

  it('keeps no Idempotency-Key, so that the import may have it', async () => {
    const send = (query: string) =>
      upload(
        api,
        admin,
        `/items/gear/import-csv${query}`,
        [{ name: 'csvFile', filename: 'rows.csv', content: `sku,name\n${randomUUID()},x` }],
        { 'idempotency-key': 'one-key' },
      )
    expect((await send('?dryRun=true')).body.success).toBe(true)
    expect((await send('')).body.results).toMatchObject({ imported: 1 })
    expect((await send('')).status).toBe(409)
  })

  it('takes numbers of sequences with it, as the page says', async () => {
    const next = async () =>
      (await api.admin('POST', '/items/gear', { sku: randomUUID(), name: 'n' })).body.data.id as number
    const first = await next()
    await post('csv', 'sku,name\nq1,x\nq2,x')
    expect(await next()).toBe(first + 3)
  })
})

describe('an import whose client goes away', () => {
  it('has written nothing, and its key says so', async () => {
    const address = await api.app.listen({ port: 0, host: '127.0.0.1' })
    const client = await connect(api.database.url)
    await client.query('begin; lock table gear in exclusive mode')
    const before = await traces()
    const { type, payload } = await formOf([
      { name: 'csvFile', filename: 'rows.csv', content: 'sku,name\nlost1,x\nlost2,x' },
    ])
    const headers = { authorization: `Bearer ${admin}`, 'content-type': type, 'idempotency-key': 'cancelled' }
    const leaving = new AbortController()
    const answer = fetch(`${address}/items/gear/import-csv`, {
      method: 'POST',
      headers,
      body: new Uint8Array(payload),
      signal: leaving.signal,
    })
    const waiting = () => api.sql(`select pid from pg_locks where relation = 'gear'::regclass and not granted`)
    await waitFor(async () => (await waiting()).length === 1)
    leaving.abort()
    await expect(answer).rejects.toThrow(/abort/)
    await waitFor(async () => (await waiting()).length === 0)
    await client.query('commit')
    await client.end()
    expect(await traces()).toEqual(before)
    // The same key with nothing to import: it would be 409 if the import had been written.
    const ask = () =>
      upload(api, admin, '/items/gear/import-csv', [{ name: 'csvFile', filename: 'rows.csv', content: '' }], {
        'idempotency-key': 'cancelled',
      })
    expect((await ask()).status).toBe(400)
    const again = await fetch(`${address}/items/gear/import-csv`, {
      method: 'POST',
      headers,
      body: new Uint8Array(payload),
    })
    expect(again.status).toBe(200)
    expect((await ask()).status).toBe(409)
  })
})

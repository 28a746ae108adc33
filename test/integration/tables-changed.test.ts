import { beforeAll, expect, it } from 'vitest'
import { report } from '../../src/cli/log.ts'
import { examine } from '../../src/doctor/doctor.ts'
import { verifyTablesOf } from '../../src/events/verify.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig, testEnv } from '../support/prepare.ts'

/** Tables that SQL from outside has changed, so that they differ from their definitions. */

let api: Api

beforeAll(async () => {
  api = await startApi()
  for (const collectionName of ['renamed', 'gone', 'fine']) {
    await api.admin('POST', '/schemas', { collectionName, schema: { fields: { title: { type: 'String' } } } })
    await api.admin('POST', `/items/${collectionName}`, { title: 'a' })
  }
  await api.sql('alter table renamed rename column title to name')
  await api.sql('drop table gone')
})

it.each(['renamed', 'gone'])('requests of %s fail for good, and say that nothing is to be repeated', async (name) => {
  for (const [method, path, body] of [
    ['GET', `/items/${name}`],
    ['GET', `/items/${name}?filter={"title":"a"}`],
    ['POST', `/items/${name}`, { title: 'b' }],
  ] as const) {
    const { status, body: answer, headers } = await api.admin(method, path, body)
    expect([method, status, answer.error.code, headers['retry-after']]).toEqual([
      method,
      500,
      'TABLE_DIFFERS',
      undefined,
    ])
  }
  expect((await api.admin('GET', '/items/fine')).status).toBe(200)
})

it('doctor and log verify name each, and go on', async () => {
  const findings = (await examine(testEnv(api.database.url))).filter(({ check }) => check === 'tables')
  expect(findings.map(({ status, says }) => `${status}: ${says}`)).toEqual([
    'problem: gone differs from its definition: its table is missing',
    'problem: renamed differs from its definition: its table has no title',
  ])
  const verified = await verifyTablesOf(testConfig(api.database.url))
  expect(verified.find(({ collection }) => collection === 'fine')).toMatchObject({ rows: 1, verified: 1 })
  expect(report(verified).trimEnd().split('\n').slice(-2)).toEqual([
    'gone: its table is missing',
    'renamed: its table has no title',
  ])
})

it.each([
  ['renamed', 1],
  ['gone', 0],
])('the definition of %s can be deleted', async (collection, rows) => {
  const dropped = [{ collection, rows }]
  const dry = await api.admin('DELETE', `/schemas/${collection}?dryRun=true`)
  expect([dry.status, dry.body.dropped]).toEqual([200, dropped])
  const before = await api.position()
  const deleted = await api.admin('DELETE', `/schemas/${collection}`)
  expect([deleted.status, deleted.body.dropped]).toEqual([200, dropped])
  expect((await api.log(before)).map(({ type, action }) => `${type} ${action}`)).toEqual([
    'data delete',
    'schema changed',
  ])
  expect((await api.admin('GET', `/items/${collection}`)).status).toBe(404)
})

import assert from 'node:assert/strict'
import { type Call, expectStatus } from '../http.ts'
import { continentRows, countryRows, definitions } from './countries.ts'
import { type List, list } from './lists.ts'
import type { See } from './steps.ts'

export async function makeCollections(admin: Call, see: See): Promise<void> {
  for (const definition of definitions) {
    expectStatus(await admin('POST', '/schemas', definition), 201)
    see(`${definition.collectionName}: ${Object.keys(definition.schema.fields).join(', ')}`)
  }
}

/** Rows must come back as they were sent, arrays and nested objects included. */
export async function importCountries(admin: Call, see: See): Promise<void> {
  const bulk = async (collection: string, rows: readonly { code: string }[]) => {
    const { data } = expectStatus(await admin<List<string>>('POST', `/items/${collection}/bulk`, rows), 201)
    assert.deepEqual(
      data,
      rows.map(({ code }) => code),
    )
  }
  await bulk('continent', continentRows)
  await bulk('country', countryRows)
  const fields = [...Object.keys(countryRows[0]!).filter((name) => name !== 'continent'), 'continent_Id']
  const path = list('country', { fields, sort: 'code', limit: -1 })
  const stored = expectStatus(await admin<List<object>>('GET', path), 200)
  assert.equal(stored.totalCount, countryRows.length)
  assert.deepEqual(
    stored.data,
    countryRows.map(({ continent, ...row }) => ({ ...row, continent_Id: continent })),
  )
  const log = expectStatus(
    await admin<List<unknown>>(
      'GET',
      list('svc_AuditLog', { filter: { entity: 'country', action: 'create' }, limit: 0 }),
    ),
    200,
  )
  assert.equal(log.totalCount, countryRows.length)
  see(`${continentRows.length} continents, ${countryRows.length} countries, read back equal; as many events in the log`)
  see(JSON.stringify(countryRows.find(({ code }) => code === 'CH')))
}

import assert from 'node:assert/strict'
import { type Call, expectStatus } from '../http.ts'
import { type Continent, type Country, countryRows } from './countries.ts'
import { type List, list, type Refusal } from './lists.ts'
import type { See } from './steps.ts'

/** The part of the world that the user's role may see, and the fields of it. */
const granted = {
  country: {
    fields: ['code', 'name', 'native', 'capital', 'languages', 'continent.name'],
    conditions: { continent_Id: 'EU' },
  },
  continent: { fields: ['code', 'name'] },
}
/** Of a country's own fields, sorted. */
export const grantedFields = ['capital', 'code', 'languages', 'name', 'native']

export async function grantEurope(admin: Call, see: See): Promise<void> {
  const path = list('svc_Role', { filter: { name: 'user' }, fields: ['id'] })
  const [role] = expectStatus(await admin<List<{ id: string }>>('GET', path), 200).data
  for (const [collection, grant] of Object.entries(granted)) {
    const permission = { role_Id: role!.id, collection, action: 'read', ...grant }
    expectStatus(await admin('POST', '/permissions', permission), 201)
    see(`read ${collection} ${JSON.stringify(grant)}`)
  }
}

export async function readAsUser(call: Call, see: See): Promise<void> {
  const europe = countryRows.filter(({ continent }) => continent === 'EU')
  const all = expectStatus(await call<List<Country>>('GET', '/items/country?sort=code&limit=-1'), 200)
  assert.deepEqual(
    all.data.map(({ code }) => code),
    europe.map(({ code }) => code),
  )
  assert.deepEqual(Object.keys(all.data[0]!).sort(), grantedFields)
  see(`all countries: ${all.totalCount} of ${countryRows.length}`)

  const filter = { languages: { jsonbContains: [{ code: 'de' }] } }
  const fields = ['code', 'native', 'languages', 'continent.name']
  const path = list('country', { filter, fields, sort: 'name', limit: 25 })
  type Nested = Omit<Country, 'continent'> & { continent: Continent }
  const german = expectStatus(await call<List<Nested>>('GET', path), 200)
  const expected = europe.filter(({ languages }) => languages.some(({ code }) => code === 'de'))
  assert.deepEqual(
    german.data.map(({ code }) => code).sort(),
    expected.map(({ code }) => code),
  )
  assert.equal(german.totalCount, expected.length)
  for (const { continent } of german.data) assert.deepEqual(continent, { code: 'EU', name: 'Europe' })
  see(
    `${path.split('?')[0]} filter=${JSON.stringify(filter)} fields=${fields}: ${german.totalCount}, the first is ${JSON.stringify(german.data[0])}`,
  )

  const refused = async (path: string) => expectStatus(await call<Refusal>('GET', path), 403).error.message
  see(`/items/country/JP: 403 ${await refused('/items/country/JP')}`)
  see(`fields=phone: 403 ${await refused(list('country', { fields: ['phone'] }))}`)
  see(`filter by phone: 403 ${await refused(list('country', { filter: { phone: { isNotNull: true } } }))}`)
}

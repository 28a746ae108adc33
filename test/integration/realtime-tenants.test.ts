import { describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/socket.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'

/** Subscribers get no changes of other tenants, by either source of the feed. */
describe.each([
  ['the WAL', 'true'],
  ['polling', 'false'],
])('changes by %s', (_source, walEnabled) => {
  it('of another tenant reach no one; a row that comes or goes is told as such, live and after a break', async () => {
    const env = { SOCKET_ENABLED: 'true', MULTI_TENANT: 'true', REALTIME_WAL_CONSUMER_ENABLED: walEnabled }
    const api = await startApi(env)
    const address = await api.app.listen({ host: '127.0.0.1', port: 0 })
    const fields = { text: { type: 'String' }, tenant_Id: { type: 'UUID' } }
    await api.admin('POST', '/schemas', { collectionName: 'deal', schema: { fields } })
    const [own, other] = (await Promise.all(['own', 'other'].map((name) => createTenant(api, name)))) as [
      string,
      string,
    ]
    const role = await createRole(api, { isTenantSpecific: true })
    await grant(api, role, { collection: 'deal', action: 'read', fields: '*' })
    const user = await createUser(api, role, own)
    const live = await connect(address, user.token)
    const { cursor, status } = await live.subscribe('deal')
    expect(status).toBe('success')
    const id = await writeEverything(api, own, other)
    await live.frame(({ data }) => data.text === 'marker')
    const told = live.frames.map(({ action, data }) => [action, data])
    expect(told).toEqual([
      ['update', expect.objectContaining({ id, text: 'canary' })],
      ['remove', { id }],
      ['create', expect.objectContaining({ text: 'marker' })],
    ])
    const resumed = await connect(address, user.token)
    await resumed.subscribe('deal', cursor)
    await resumed.frame(({ data }) => data.text === 'marker')
    expect(resumed.frames.map(({ action, data }) => [action, data])).toEqual(told)
  })
})

/** A thousand rows of the other tenant come, change and go; one of them moves over and back; then an own one comes. */
async function writeEverything(api: Api, own: string, other: string): Promise<string> {
  await api.sql(`insert into deal (text, "tenant_Id") select 'canary', $1 from generate_series(1, 1000)`, [other])
  const [{ id }] = await api.sql('select id from deal limit 1')
  const move = (tenant: string) => api.sql('update deal set "tenant_Id" = $1 where id = $2', [tenant, id])
  await move(own)
  await move(other)
  await api.sql(`update deal set text = 'canary 2'`)
  await api.sql('delete from deal')
  await api.sql(`insert into deal (text, "tenant_Id") values ('marker', $1)`, [own])
  return id
}

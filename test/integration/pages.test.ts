import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

describe('svc_Page and svc_Block', () => {
  it('hold pages with their blocks, one slug each, and lose the blocks with the page', async () => {
    const page = (await api.admin('POST', '/items/svc_Page?fields=*', { name: 'Home', slug: 'home' })).body.data
    expect(page).toMatchObject({ sort: 0, isPublic: false, enabled: true, userCreated_Id: expect.any(String) })
    expect((await api.admin('POST', '/items/svc_Page', { name: 'Again', slug: 'home' })).status).toBe(409)
    const block = { page_Id: page.id, type: 'table', collection: 'svc_User', position: { row: 1, col: 1, span: 12 } }
    const made = (await api.admin('POST', '/items/svc_Block?fields=*', block)).body.data
    expect(made).toMatchObject({ configVersion: 1, position: { row: 1, col: 1, span: 12 } })
    expect((await api.admin('POST', '/items/svc_Block', { ...block, type: 'clock' })).status).toBe(400)
    const child = (await api.admin('POST', '/items/svc_Page', { name: 'Child', slug: 'c', parent_Id: page.id })).body
    const read = await api.admin('GET', `/items/svc_Page/${page.id}?fields=blocks.type`)
    expect(read.body.data.blocks).toEqual([{ id: made.id, type: 'table' }])
    const before = await api.position()
    expect((await api.admin('DELETE', `/items/svc_Page/${page.id}`)).status).toBe(200)
    expect((await api.log(before)).map(({ entity, action }) => [entity, action])).toEqual(
      expect.arrayContaining([
        ['svc_Page', 'delete'],
        ['svc_Block', 'delete'],
      ]),
    )
    expect((await api.admin('GET', `/items/svc_Page/${child.data.id}`)).body.data.parent_Id).toBeNull()
  })

  it('are closed to others without a grant, and tell their subscribers', async () => {
    const user = await api.user()
    expect((await user.call('GET', '/items/svc_Page')).status).toBe(403)
    const { collections } = api.runtime.catalog.current()
    for (const name of ['svc_Page', 'svc_Block']) expect(collections.get(name)!.realtime.enabled).toBe(true)
  })

  it('belong to tenants: a block to that of its page', async () => {
    const on = await startApi({ MULTI_TENANT: 'true' })
    const [one, two] = await Promise.all(
      ['one', 'two'].map(async (name) => (await on.admin('POST', '/items/svc_Tenant', { name })).body.data.id),
    )
    const grants = ['svc_Page', 'svc_Block'].map((collection) => ({ collection, action: 'read', fields: ['*'] }))
    const user = await on.user(grants)
    await on.sql('update "svc_UserRole" set "tenant_Id" = $1 where "user_Id" = $2', [one, user.id])
    const password = 'password of a user'
    const login = await on.anonymous('POST', '/auth/login', { email: user.email, password, tenant_Id: one })
    for (const tenant_Id of [one, two]) {
      const page = { name: 'P', slug: 'p', tenant_Id }
      const { body } = await on.admin('POST', '/items/svc_Page', page)
      await on.admin('POST', '/items/svc_Block', { page_Id: body.data.id, type: 'form' })
    }
    const call = on.as(login.body.token)
    expect((await call('GET', '/items/svc_Page?fields=tenant_Id')).body.data).toMatchObject([{ tenant_Id: one }])
    expect((await call('GET', '/items/svc_Block')).body.totalCount).toBe(1)
  })
})

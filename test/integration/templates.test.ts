import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { builtInTemplates } from '../../src/features/templates/built-in.ts'
import { runSetup } from '../../src/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'

let api: Api

beforeAll(async () => {
  api = await startApi()
})

const specified = ['magic_link', 'invite', 'password_reset', 'welcome', 'verification']
const reference = [
  ...['inviteNewUser', 'inviteExistingUser', 'magicLinkUrl', 'magicLinkCode', 'passwordReset', 'emailVerification'],
  ...['welcome', 'notification'],
]

describe('GET /templates', () => {
  it('shows everybody the types of both vocabularies and their variables', async () => {
    const { status, body } = await api.anonymous('GET', '/templates/types')
    expect(status).toBe(200)
    const types = body.data.types.map(({ type }: { type: string }) => type)
    expect(types).toEqual(expect.arrayContaining([...specified, ...reference, 'custom']))
    for (const type of body.data.types)
      expect(type).toEqual({
        type: expect.any(String),
        label: expect.any(String),
        description: expect.any(String),
        variables: expect.any(Array),
      })
    expect(body.data.commonVariables).toEqual(expect.arrayContaining(['project_name', 'user.fullName', 'tenant.logo']))
  })

  it.each([...specified, ...reference])('shows an administrator the built-in %s', async (type) => {
    const { status, body } = await api.admin('GET', `/templates/default/${type}`)
    expect(status).toBe(200)
    expect(body.data).toMatchObject({ type, subject: expect.any(String), variables: expect.any(Array) })
    expect(body.data.body).toContain('<!doctype html>')
    expect(body.data.commonVariables).toContain('logo_url')
  })

  it.each(['custom', 'nothing', '__proto__', 'constructor'])('has no built-in %s', async (type) => {
    const { status, body } = await api.admin('GET', `/templates/default/${type}`)
    expect({ status, body }).toEqual({ status: 404, body: { data: null, message: expect.any(String) } })
  })

  it('shows an administrator all of them, and nobody else', async () => {
    const { body } = await api.admin('GET', '/templates/defaults')
    expect(body.data.templates.map(({ type }: { type: string }) => type)).toEqual(expect.arrayContaining(specified))
    expect(body.data.commonVariables).toContain('currentYear')
    const { call } = await api.user()
    for (const path of ['/templates/defaults', '/templates/default/invite']) {
      expect((await api.anonymous('GET', path)).status).toBe(401)
      expect((await call('GET', path)).status).toBe(403)
    }
  })
})

describe('the first rows of svc_Template', () => {
  const setUp = () => runSetup(testConfig(api.database.url), pino({ level: 'fatal' }))

  it('are there, global and active', async () => {
    const { body } = await api.admin('GET', '/items/svc_Template?limit=-1')
    const rows = body.data as { type: string }[]
    expect(rows.map(({ type }) => type).sort()).toEqual([...specified, 'notification'].sort())
    for (const row of rows) expect(row).toMatchObject({ tenant_Id: null, isActive: true })
  })

  it('follow what is built in until somebody changes or deletes them', async () => {
    const id = async (type: string) => (await api.sql('select id from "svc_Template" where type = $1', [type]))[0].id
    await api.sql(`update "svc_Template" set body = 'of an older version' where type in ('welcome', 'invite')`)
    const changed = await api.admin('PATCH', `/items/svc_Template/${await id('invite')}`, { subject: 'My own' })
    expect(changed.status).toBe(200)
    await api.admin('DELETE', `/items/svc_Template/${await id('notification')}`)
    await setUp()
    const rows = await api.sql('select type, subject, body from "svc_Template"')
    expect(rows).toContainEqual({ type: 'welcome', ...builtInTemplates.welcome })
    expect(rows).toContainEqual({ type: 'invite', subject: 'My own', body: 'of an older version' })
    expect(rows.map(({ type }) => type)).not.toContain('notification')
  })
})

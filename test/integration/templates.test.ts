import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { systemActor } from '../../src/events/types.ts'
import { contextFor } from '../../src/extensions/context.ts'
import { claim, compose } from '../../src/features/messaging/mail/jobs.ts'
import { builtInTemplates } from '../../src/features/messaging/templates/built-in.ts'
import { renderMail } from '../../src/features/messaging/templates/templates.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'
import { storeGrants } from '../support/stored-grants.ts'
import { createTenant } from '../support/tenants.ts'

let api: Api
const sender = { name: 'test', host: '', port: 25, secure: false, user: '', pass: '', from: 'noreply@daybook.example' }

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

  it('shows all of them to an administrator alone', async () => {
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
    const own = ['notification', 'email_change', 'email_change_notice']
    expect(rows.map(({ type }) => type).sort()).toEqual([...specified, ...own].sort())
    for (const row of rows) expect(row).toMatchObject({ tenant_Id: null, isActive: true })
  })

  it('follow what is built in until they are changed or deleted', async () => {
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

describe('a template that is saved', () => {
  const make = (more: object) =>
    api.admin('POST', '/items/svc_Template', { type: 'custom', subject: 'S', body: '<p>B</p>', ...more })

  it.each([
    ['body', '{{ x | constructor }}'],
    ['body', `{% include '/etc/passwd' %}`],
    ['body', `{% render '../../.env' %}`],
    ['body', `{% layout 'x' %}`],
    ['body', '{% if %}'],
    ['body', '{{ unfinished'],
    ['body', '{% unknown %}'],
    ['body', '{% for i in (1..1000000000) %}{% endfor %}'],
    ['body', `{{ 'now' | date: '%9999999d' }}`],
    ['body', 'x'.repeat(256 * 1024 + 1)],
    ['subject', 'One\r\nBcc: evil@evil.test'],
    ['subject', 'One\u2028two'],
    ['subject', 'x'.repeat(251)],
    ['subject', '{{ x | constructor }}'],
    ['type', 'not a type'],
  ])('is refused for its %s %.50j', async (field, value) => {
    const position = await api.position()
    const { status, body } = await make({ [field]: value })
    expect({ status, field: body.error.details?.errors?.[0]?.field }).toEqual({ status: 400, field })
    expect(await api.log(position)).toEqual([])
  })

  it('is checked when it is changed and when it is imported', async () => {
    const { body } = await make({})
    const id = body.data.id
    expect((await api.admin('PATCH', `/items/svc_Template/${id}`, { body: '{% if %}' })).status).toBe(400)
    expect((await api.admin('PATCH', `/items/svc_Template/${id}`, { body: '<p>{{ user.fullName }}</p>' })).status).toBe(
      200,
    )
    const bulk = await api.admin('POST', '/items/svc_Template/bulk', [
      { type: 'custom_2', subject: 'S', body: '{% if %}' },
    ])
    expect(bulk.status).toBe(400)
  })

  it('is for administrators alone', async () => {
    const { call, roleId } = await api.user()
    await storeGrants(api, roleId, [{ collection: 'svc_Template', action: 'create', fields: ['*'] }])
    expect((await call('POST', '/items/svc_Template', { type: 'x', subject: 'S', body: 'B' })).status).toBe(403)
  })
})

describe('the template of a mail', () => {
  const store = (type: string, subject: string, more = {}) =>
    api.admin('POST', '/items/svc_Template', { type, subject, body: '<p>{{ name }}</p>', ...more })

  async function subjectFor(variables: object, tenantId: string | null = null): Promise<string> {
    const filled = { name: '<b>Ada</b>', project_name: 'Daybook', ...variables }
    const contents = { tenantId, variables: filled, recordedVariables: filled, subject: undefined }
    return (await renderMail(api.runtime, { type: 'magic_link', ...contents })).subject
  }

  it('is the tenant’s own if it is active, else the installation’s, else the built-in one', async () => {
    const tenantId = await createTenant(api, 'Acme')
    await api.sql(`update "svc_Template" set subject = 'global' where type = 'magic_link'`)
    await store('magicLinkCode', 'global code')
    const own = await store('magic_link', 'own', { tenant_Id: tenantId })
    const code = { magicCode: 'ABC' }
    expect(await subjectFor({})).toBe('global')
    expect(await subjectFor(code)).toBe('global code')
    expect(await subjectFor(code, tenantId)).toBe('own')
    await api.admin('PATCH', `/items/svc_Template/${own.body.data.id}`, { isActive: false })
    expect(await subjectFor(code, tenantId)).toBe('global code')
    await api.sql(`update "svc_Template" set "isActive" = false where type like 'magic%'`)
    expect(await subjectFor(code, tenantId)).toBe('Sign in to Daybook')
    await api.sql(`update "svc_Template" set "isActive" = true where type = 'magic_link'`)
  })

  it.each(['{% if %}', '{% for i in (1..1000000000) %}{% endfor %}'])(
    'gives way to the built-in one when it was stored past the checks and fails: %s',
    async (body) => {
      await api.sql(`update "svc_Template" set body = $1 where type = 'magic_link'`, [body])
      expect(await subjectFor({})).toBe('Sign in to Daybook')
      await api.sql(`update "svc_Template" set body = 'B' where type = 'magic_link'`)
    },
  )
})

describe('POST /templates/{id}/preview', () => {
  const idOf = async (type: string) => (await api.sql('select id from "svc_Template" where type = $1', [type]))[0].id
  const preview = (id: string, body?: object) => api.admin('POST', `/templates/${id}/preview`, body)

  it('renders every seeded template with sample data, logo and all', async () => {
    for (const { id, type } of await api.sql('select id, type from "svc_Template"')) {
      const { status, body } = await preview(id)
      expect({ type, status }).toEqual({ type, status: 200 })
      expect(body.data).toEqual({ subject: expect.any(String), html: expect.any(String), text: expect.any(String) })
      expect(body.data.html).not.toContain('cid:')
    }
    const { html, text } = (await preview(await idOf('verification'))).body.data
    expect(html).toContain('src="data:image/png;base64,')
    expect(text).toContain('/auth/verify-email/sample')
  })

  it('renders with given data, which is escaped and never read as Liquid', async () => {
    const made = await api.admin('POST', '/items/svc_Template', {
      type: 'previewed',
      subject: 'For {{ user.fullName }}',
      body: '<p>{{ user.fullName }} {{ user.email }} {{ extra.word }} {{ user.__proto__ }}{{ user.constructor.name }}</p>',
    })
    const fullName = '<img src=x onerror=alert(1)> {{ 7 | times: 7 }}\r\nBcc: x'
    const { body } = await preview(made.body.data.id, { data: { user: { fullName }, extra: { word: 'own' } } })
    expect(body.data.subject).toBe('For <img src=x onerror=alert(1)> {{ 7 | times: 7 }} Bcc: x')
    expect(body.data.html).toBe(
      '<p>&lt;img src=x onerror=alert(1)&gt; {{ 7 | times: 7 }}\r\nBcc: x ada@example.com own </p>',
    )
  })

  it('prints the tenant as its name, also where data names another', async () => {
    const id = await idOf('previewed')
    const unsaved = { subject: '{{ tenant }}', body: '{{ tenant }}/{{ tenant.name }}/{{ tenant.email }}' }
    const { body } = await preview(id, unsaved)
    expect(body.data).toMatchObject({
      ...{ subject: 'Analytical Engines' },
      html: 'Analytical Engines/Analytical Engines/office@engines.example.com',
    })
    const named = await preview(id, { ...unsaved, data: { tenant: { name: 'A & B' } } })
    expect(named.body.data).toMatchObject({ subject: 'A & B', html: expect.stringMatching(/^A &amp; B\/A &amp; B\//) })
    expect((await preview(id, { ...unsaved, data: { tenant: 'Text' } })).body.data.subject).toBe('Text')
  })

  it('renders what an editor has yet to save, in place of what is stored', async () => {
    const id = await idOf('previewed')
    const before = await api.position()
    const { body } = await preview(id, { subject: 'New {{ project_name }}', body: '<b>{{ user.email }}</b>' })
    expect(body.data).toMatchObject({ subject: 'New Daybook', html: '<b>ada@example.com</b>' })
    expect((await preview(id, { subject: 'only' })).body.data).toMatchObject({ subject: 'only' })
    const broken = await preview(id, { body: '{% if %}' })
    expect(broken).toMatchObject({ status: 400, body: { error: { message: 'The template cannot be rendered' } } })
    expect((await preview(id, { body: 'x'.repeat(256 * 1024 + 1) })).status).toBe(400)
    expect(await api.position()).toBe(before)
  })

  it('says what is wrong', async () => {
    const id = await idOf('previewed')
    expect((await preview('no-id')).status).toBe(404)
    expect((await preview('7e3b1a70-0000-4000-8000-00000000ffff')).status).toBe(404)
    expect((await preview(id, { data: 'x' })).status).toBe(400)
    await api.sql(
      `update "svc_Template" set body = '{% for i in x %}{% for j in x %}{% for k in x %}{% endfor %}{% endfor %}{% endfor %}' where id = $1`,
      [id],
    )
    const bomb = await preview(id, { data: { x: Array.from({ length: 1000 }, () => 1) } })
    expect(bomb).toMatchObject({ status: 400, body: { error: { message: 'The template cannot be rendered' } } })
    const { call } = await api.user()
    expect((await call('POST', `/templates/${id}/preview`)).status).toBe(403)
  })
})

describe('mailService.sendMail', () => {
  const mail = (options: object) => {
    const context = contextFor(api.runtime, 'test')
    return context.mailService.sendMail({ to: 'ada@example.com', ...options })
  }

  it('sends a stored template with the variables of the extension', async () => {
    await api.admin('POST', '/items/svc_Template', {
      type: 'order_sent',
      subject: 'Order {{ order.id }}',
      body: '{{ code }}',
    })
    const id = await mail({ type: 'order_sent', context: { order: { id: 7 }, code: 'B' } })
    const [row] = await api.sql('select "templateName", context, status from "svc_EmailLog" where id = $1', [id])
    expect(row).toEqual({
      templateName: 'custom',
      status: 'queued',
      context: { template: 'order_sent', variables: { order: { id: 7 }, code: 'B' } },
    })
    expect((await api.jobs('mail')).map(({ data }) => data)).toContainEqual(expect.objectContaining({ emailLogId: id }))
    const claimed = await claim(api.runtime, systemActor, { id, sender, claimSeconds: 60 })
    if (claimed.state !== 'claimed') throw new Error(claimed.state)
    expect((await compose(api.runtime, claimed.toSend)).outgoing).toMatchObject({
      subject: 'Order 7',
      html: 'B',
      inline: [],
      attachments: [],
    })
  })

  it('takes a user and a tenant that are no rows as what templates see', async () => {
    const body = '{{ name }}|{{ user.fullName }}|{{ user.rank }}|{{ user.email }}|{{ tenant }}|{{ order }}'
    await api.admin('POST', '/items/svc_Template', { type: 'described', subject: 'To {{ tenant.name }}', body })
    const user = { firstName: 'Ada', lastName: 'Lovelace', rank: 'Countess' }
    const composed = async (context: object) => {
      const id = await mail({ type: 'described', context })
      const claimed = await claim(api.runtime, systemActor, { id, sender, claimSeconds: 60 })
      if (claimed.state !== 'claimed') throw new Error(claimed.state)
      const { subject, html } = (await compose(api.runtime, claimed.toSend)).outgoing
      return [subject, html]
    }
    expect(await composed({ user, tenant: { name: 'Engines' }, order: 7 })).toEqual([
      'To Engines',
      'Ada|Ada Lovelace|Countess|ada@example.com|Engines|7',
    ])
    const id = await createTenant(api, 'Row')
    expect(await composed({ user: { firstName: 'Bo' }, tenant: { id, name: 'Other' } })).toEqual([
      'To Row',
      'Bo|Bo||ada@example.com|Row|',
    ])
    await expect(mail({ type: 'described', context: { user: { id: 'no id' } } })).rejects.toThrow(/id/)
  })

  it('knows the built-in ones by both vocabularies, and refuses the rest at once', async () => {
    await mail({ templateName: 'emailVerification' })
    await expect(mail({ type: 'order_snet' })).rejects.toThrow('there is no active template "order_snet"')
    await expect(mail({})).rejects.toThrow('there is no active template ""')
  })
})

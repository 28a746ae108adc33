import { createHash, randomUUID } from 'node:crypto'
import { text } from 'node:stream/consumers'
import sharp from 'sharp'
import { beforeAll, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { contextFor } from '../../src/extensions/context.ts'
import { verifyFiles } from '../../src/features/files/files/files.ts'
import { attemptMail } from '../../src/features/messaging/mail/jobs.ts'
import { openProgress } from '../../src/features/messaging/notifications/notifications.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { noise, plain } from '../support/images.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** Where files are used: avatars, images of settings, mails, extensions, imports. */

let api: Api
let smtp: SmtpDouble
let extension: ReturnType<typeof contextFor>
let picture: Buffer

beforeAll(async () => {
  smtp = await startSmtp()
  api = await startApi({ MULTI_TENANT: 'true', STORAGE_FOLDER_STRUCTURE: 'true', ...smtp.env })
  extension = contextFor(api.runtime, 'svc-hook-test')
  picture = await plain(60, 40).png().toBuffer()
  const fields = { title: { type: 'String' }, file_Id: { type: 'UUID' } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'article', schema: { fields } })).status).toBe(201)
})

/** A user of a new tenant. */
async function memberWith(permissions: readonly object[]) {
  const role = await createRole(api)
  await grant(api, role, ...permissions)
  return createUser(api, role, await createTenant(api, randomUUID()))
}

const asset = async (path: string, token?: string) => {
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` }
  const { statusCode, rawPayload, headers: answered } = await api.app.inject({ url: `/assets/${path}`, headers })
  return { status: statusCode, bytes: rawPayload, type: answered['content-type'] }
}
const statusOf = async (path: string, token?: string) => (await asset(path, token)).status
const differences = async () => (await verifyFiles(api.runtime, { hashes: true })).differences

describe('an avatar', () => {
  it('is uploaded, set, read with its user, and shown to those who may read the file', async () => {
    const own = { userCreated_Id: { eq: '$CURRENT_USER' } }
    const member = await memberWith([
      { collection: 'svc_File', action: 'create', fields: ['*'] },
      { collection: 'svc_File', action: 'read', fields: ['id', 'title', 'type', 'width'], conditions: own },
      {
        collection: 'svc_User',
        action: 'read',
        fields: ['*', 'avatar.*'],
        conditions: { id: { eq: '$CURRENT_USER' } },
      },
      { collection: 'svc_User', action: 'update', fields: ['avatar_Id'], conditions: { id: { eq: '$CURRENT_USER' } } },
    ])
    const part = { name: 'file', filename: 'ada.png', type: 'image/png', content: picture }
    const { body } = await upload(api, member.token, '/files', [part])
    const set = await member.call('PATCH', `/items/svc_User/${member.id}`, { avatar_Id: body.data })
    expect(set.status, set.text).toBe(200)
    expect((await member.call('GET', '/auth/me')).body.user).toMatchObject({ id: member.id, avatar_Id: body.data })
    const user = await member.call('GET', `/items/svc_User/${member.id}?fields=id,avatar.id,avatar.title,avatar.width`)
    expect(user.body.data).toEqual({ id: member.id, avatar: { id: body.data, title: 'ada.png', width: 60 } })
    expect((await asset(body.data, member.token)).bytes).toEqual(picture)
    expect(await sharp((await asset(`${body.data}?width=20`, member.token)).bytes).metadata()).toMatchObject({
      width: 20,
    })
    const other = await memberWith([{ collection: 'svc_File', action: 'read', conditions: own }])
    expect([await statusOf(body.data, other.token), await statusOf(body.data)]).toEqual([403, 403])
    // Somebody else's private file is no avatar of one's own.
    const foreign = await storeFile(api, { content: picture })
    const taken = await member.call('PATCH', `/items/svc_User/${member.id}`, { avatar_Id: foreign.id })
    expect(taken.status, taken.text).toBeGreaterThanOrEqual(400)
    expect((await member.call('DELETE', `/files/${body.data}`)).status).toBe(403)
  })
})

describe('images of the settings', () => {
  it('are in the settings as files, without what is private, and as assets by their names', async () => {
    const { id } = await storeFile(api, { content: picture, name: 'logo.png', width: 60, height: 40 })
    const set = await api.admin('PATCH', '/settings', { project_logo_light_Id: id, app_url: 'https://app.example.com' })
    const shown = { id, title: 'logo.png', type: 'image/png', size: picture.length, width: 60, isPublic: false }
    expect(set.body.data).toMatchObject({ project_logo_light_Id: id, project_logo_light: shown, project_icon: null })
    for (const path of ['/settings', '/settings/by-app-url?app_url=https://app.example.com']) {
      const { body } = await api.anonymous('GET', path)
      expect(body.data).toMatchObject({ project_logo_light: shown, project_logo_dark: null, email_icon: null })
      for (const hidden of ['storage', 'storage_folder', 'hash', 'tenant_Id', 'userCreated_Id'])
        expect(body.data.project_logo_light).not.toHaveProperty(hidden)
    }
    expect((await asset('project_logo_light')).bytes).toEqual(picture)
    expect(await statusOf(id)).toBe(403)
    // PATCH takes back the answer of GET.
    const { data } = (await api.admin('GET', '/settings')).body
    expect((await api.admin('PATCH', '/settings', data)).status).toBe(200)
    expect((await api.admin('DELETE', `/files/${id}`)).status).toBe(409)
    await api.admin('PATCH', '/settings', { project_logo_light_Id: null })
  })
})

describe('mails', () => {
  /** What the SMTP server got of a mail of the extension, or why it got nothing. */
  async function sent(mail: object): Promise<any> {
    const id = await extension.mailService.sendMail({ to: 'ada@example.com', type: 'welcome', ...mail })
    const mailer = openMailer()
    const attempt = { retryCount: 0, retryLimit: 3, signal: new AbortController().signal }
    const before = smtp.accepted.length
    const delivery = await attemptMail(api.runtime, mailer, id, attempt)
    mailer.close()
    return smtp.accepted[before] ?? delivery
  }
  const files = (mail: any) =>
    mail.attachments.map(({ filename, mimeType, disposition, content }: any) => ({
      ...{ filename, mimeType, disposition },
      content: Buffer.from(content),
    }))

  it('show the icon that the settings name, smaller where it is large, else the default', async () => {
    const logo = async () => files(await sent({})).find(({ disposition }: any) => disposition === 'inline').content
    expect(await logo()).toEqual(api.runtime.mailLogo)
    const small = await storeFile(api, { content: picture })
    await api.admin('PATCH', '/settings', { email_icon_Id: small.id })
    expect(await logo()).toEqual(picture)
    const large = await noise(900, 600).webp({ lossless: true }).toBuffer()
    const big = await storeFile(api, { content: large, type: 'image/webp', name: 'large.webp' })
    await api.admin('PATCH', '/settings', { email_icon_Id: big.id })
    expect(await sharp(await logo()).metadata()).toMatchObject({ format: 'png', width: 360, height: 240 })
    const broken = await storeFile(api, { content: 'no image', type: 'image/webp', name: 'broken.webp' })
    await api.admin('PATCH', '/settings', { email_icon_Id: broken.id })
    expect(await logo()).toEqual(api.runtime.mailLogo)
    await api.admin('PATCH', '/settings', { email_icon_Id: null })
  })

  it('take files along, under their names', async () => {
    const bill = await storeFile(api, { content: 'a bill', type: 'application/pdf', name: 'Rechnung März.pdf' })
    const other = await storeFile(api, { content: 'other', type: 'text/plain', name: 'x.txt' })
    const mail = await sent({ attachments: [bill.id, { file: other.id, filename: 'note\r\nBcc: x@y.zz.txt' }] })
    expect(files(mail).filter(({ disposition }: any) => disposition === 'attachment')).toEqual([
      ...[
        {
          filename: 'Rechnung März.pdf',
          mimeType: 'application/pdf',
          disposition: 'attachment',
          content: Buffer.from('a bill'),
        },
      ],
      expect.objectContaining({ filename: 'note Bcc: x@y.zz.txt', content: Buffer.from('other') }),
    ])
    expect(mail.recipients).toEqual(['ada@example.com'])
  })

  it('refuse files that are not there, are another tenant’s or too large, and fail where one is gone later', async () => {
    const [one, two] = [await createTenant(api, 'c'), await createTenant(api, 'd')]
    const foreign = await storeFile(api, { content: 'x', tenant: two })
    const large = await storeFile(api, { content: 'x' })
    await api.sql('update "svc_File" set size = 20000000 where id = $1', [large.id])
    const tenant = { id: one }
    const refused = (attachments: unknown, context = {}) =>
      expect(sent({ attachments, context })).rejects.toMatchObject({ status: 400 })
    await refused([randomUUID()])
    await refused(['no id'])
    await refused([{ path: '/etc/passwd' }])
    await refused([large.id])
    await refused([foreign.id], { tenant })
    const gone = await storeFile(api, { content: 'x' })
    const id = await extension.mailService.sendMail({ to: 'a@b.cd', type: 'welcome', attachments: [gone.id] })
    await api.sql('delete from "svc_File" where id = $1', [gone.id])
    const mailer = openMailer()
    await attemptMail(api.runtime, mailer, id, { retryCount: 0, retryLimit: 3, signal: new AbortController().signal })
    mailer.close()
    expect(await api.sql('select status, "errorMessage" from "svc_EmailLog" where id = $1', [id])).toEqual([
      { status: 'failed', errorMessage: 'the mail could not be composed: there is no such file' },
    ])
    await api.sql('delete from "svc_File" where id = $1', [large.id])
  })
})

describe('extensions', () => {
  it('store, read and replace files, as the platform or as their caller', async () => {
    const { storageService } = extension
    const position = await api.position()
    const id = await storageService.createFile({ content: 'Hello', filename: 'a.txt', type: 'text/plain', title: 'A' })
    expect((await api.log(position)).map(({ entity, action }) => `${entity} ${action}`)).toEqual(['svc_File create'])
    const found = await storageService.readFile(id)
    const hash = createHash('sha256').update('Hello').digest('hex')
    expect(found).toMatchObject({ id, filename: 'a.txt', type: 'text/plain', size: 5, hash })
    expect(await text(found.content)).toBe('Hello')
    expect(await text((await storageService.readFile(id, { range: { start: 1, end: 2 } })).content)).toBe('el')
    async function* pieces() {
      yield Buffer.from('other ')
      yield Buffer.from('content')
    }
    await storageService.replaceFile(id, { content: pieces(), filename: 'b.txt' })
    expect(await text((await storageService.readFile(id)).content)).toBe('other content')
    await expect(storageService.readFile(randomUUID())).rejects.toMatchObject({ status: 404 })
    await expect(storageService.createFile({ content: 'x' } as never)).rejects.toThrow('needs a filename')
    const asCaller: unknown[] = []
    api.runtime.hooks.register('test', 'article', 'items.create.after', async ({ accountability, document }: any) => {
      if (document.title !== 'as caller') return
      const attempts = [
        storageService.readFile(id, { accountability }),
        storageService.createFile({ content: 'x', filename: 'x' }, { accountability }),
        storageService.replaceFile(id, { content: 'x', filename: 'x' }, { accountability }),
      ]
      asCaller.push(...(await Promise.allSettled(attempts)).map((one: any) => one.reason?.status ?? one.status))
    })
    const member = await memberWith([{ collection: 'article', action: 'create', fields: ['*'] }])
    expect((await member.call('POST', '/items/article', { title: 'as caller' })).status).toBe(201)
    expect(asCaller).toEqual([403, 403, 403])
  })

  it('store files as part of a change: with it, or not at all', async () => {
    api.runtime.hooks.register('test', 'article', 'items.create', async ({ data }: any) => {
      if (!/^(kept|refused)$/.test(data.title)) return undefined
      const file_Id = await extension.storageService.createFile({ content: data.title, filename: 'f.txt' })
      if (data.title === 'refused') throw new Error('not today')
      return { data: { ...data, file_Id } }
    })
    const files = async () => (await api.sql('select id from "svc_File"')).length
    const before = await files()
    expect(await api.admin('POST', '/items/article', { title: 'refused' })).toMatchObject({ status: 400 })
    expect(await files()).toBe(before)
    const kept = await api.admin('POST', '/items/article?fields=file_Id', { title: 'kept' })
    expect(await text((await extension.storageService.readFile(kept.body.data.file_Id)).content)).toBe('kept')
    // Refused content is held by its hold alone, and goes when that is over.
    expect(await api.sql('select "dueAt" < now() + interval \'61 minutes\' as soon from "svc_FileRemoval"')).toEqual([
      { soon: true },
    ])
    expect((await differences()).filter(({ key }) => key.endsWith('f.txt'))).toEqual([])
  })
})

it('reports the size of files as it is counted', async () => {
  await storeFile(api, { content: 'abc', tenant: await createTenant(api, 'report') })
  const report = {
    groupBy: ['tenant_Id', 'storage'],
    aggregate: { bytes: { function: 'sum', field: 'size' }, files: { function: 'count', field: '*' } },
  }
  const { body, text: said } = await api.admin('POST', '/reports/svc_File', report)
  const usage = (await api.admin('GET', '/files/usage')).body.data
  const sorted = (rows: any[]) =>
    rows
      .map(({ tenant_Id, storage, bytes, files }) => `${tenant_Id} ${storage} ${Number(bytes)} ${Number(files)}`)
      .sort()
  expect(usage.length, said).toBeGreaterThan(1)
  expect(sorted(body.data)).toEqual(sorted(usage))
})

describe('a stored file', () => {
  const csv = 'title\none\ntwo\n'
  it('is imported by those who may read it and create rows, all rows or none', async () => {
    const { id } = await storeFile(api, { content: csv, type: 'text/csv', name: 'articles.csv' })
    const tenant = await createTenant(api, 'imports')
    const call = (body: object, as: Call = api.admin, file = id) =>
      as('POST', `/files/${file}/import`, { ...body, tenant })
    const position = await api.position()
    expect(await call({ collection: 'article' })).toMatchObject({
      status: 200,
      body: { success: true, results: { imported: 2, failed: 0, errors: [] } },
    })
    expect((await api.log(position)).map(({ changes }) => changes.after.title)).toEqual(['one', 'two'])
    const json = await storeFile(api, { content: '[{"title":"three"}]', type: 'application/json', name: 'x' })
    expect((await call({ collection: 'article', format: 'json' }, api.admin, json.id)).status).toBe(200)
    const latin = await storeFile(api, {
      content: Buffer.from('title\ncaf\xe9', 'latin1'),
      type: 'text/csv',
      name: 'l.csv',
    })
    expect((await call({ collection: 'article' }, api.admin, latin.id)).status).toBe(400)
    const encoding = 'windows-1252'
    expect((await call({ collection: 'article', encoding }, api.admin, latin.id)).status).toBe(200)
    expect(await api.sql("select title from article where title like 'caf%'")).toEqual([{ title: 'café' }])
    const bad = await storeFile(api, { content: '[{"title":{"a":1}}]', type: 'application/json', name: 'x' })
    expect((await call({ collection: 'article' }, api.admin, bad.id)).status).toBe(400)
    const image = await storeFile(api, { content: picture })
    expect(await call({ collection: 'article' }, api.admin, image.id)).toMatchObject({
      status: 400,
      body: { error: { message: 'The file must be a CSV or a JSON file' } },
    })
    const count = async () => (await api.sql('select count(*)::int as n from article'))[0].n
    const [rows, unmoved] = [await count(), await api.position()]
    expect(await call({ collection: 'article', dryRun: true })).toMatchObject({
      status: 200,
      body: { success: true, dryRun: true, results: { rows: 2, wouldCreate: 2, failed: 0 } },
    })
    const broken = await call({ collection: 'article', dryRun: true }, api.admin, bad.id)
    expect(broken).toMatchObject({ status: 200, body: { success: false, results: { failed: 1 } } })
    for (const more of [{ dryrun: true }, { dryRun: 'true' }])
      expect((await call({ collection: 'article', ...more })).status).toBe(400)
    expect((await api.admin('POST', `/files/${id}/import?dryRun=true`, { collection: 'article', tenant })).status).toBe(
      400,
    )
    expect([await count(), await api.position()]).toEqual([rows, unmoved])
    expect((await call({})).status).toBe(400)
    expect((await call({ collection: 'nowhere' })).status).toBe(404)
    expect((await call({ collection: 'article' }, api.admin, randomUUID())).status).toBe(404)
    const writer = await memberWith([{ collection: 'article', action: 'create', fields: ['*'] }])
    const reader = await memberWith([{ collection: 'svc_File', action: 'read', fields: ['*'] }])
    expect((await call({ collection: 'article' }, writer.call)).status).toBe(403)
    expect((await call({ collection: 'article' }, reader.call)).status).toBe(403)
    expect((await call({ collection: 'article' }, api.anonymous)).status).toBe(401)
  })
})

it('reports the progress of long work to the user who began it, in one notification', async () => {
  const { id } = await storeFile(api, { content: 'title\none\n', type: 'text/csv', name: 'articles.csv' })
  const lines = Array.from({ length: 1200 }, (_, n) => `row ${n}`)
  const long = await storeFile(api, { content: ['title', ...lines].join('\n'), type: 'text/csv', name: 'long.csv' })
  const target = { collection: 'article', tenant: await createTenant(api, 'told') }
  const told = () => api.sql('select title, message, data, seen from "svc_Notification" order by "createdAt"')
  await api.admin('POST', `/files/${id}/import`, target)
  expect(await told()).toEqual([])
  const { progress } = api.runtime
  Object.assign(api.runtime, { progress: openProgress(api.runtime, { quietMs: -1, everyMs: -1 }) })
  await api.admin('POST', `/files/${long.id}/import`, target)
  await api.admin('POST', `/files/${id}/import`, { ...target, format: 'json' })
  await api.admin('POST', '/files/migrate-storage-structure')
  Object.assign(api.runtime, { progress })
  expect(await told()).toMatchObject([
    {
      title: 'Import into article',
      message: '1200 items have been imported',
      data: { collection: 'article', rows: 1200, isDone: true },
      seen: false,
    },
    { message: expect.stringContaining('Invalid JSON'), data: { failed: true, isDone: true } },
    { title: 'Files are being moved into folders', data: { isDone: true, moved: expect.any(Number) } },
  ])
  const changes = await api.sql(
    `select action from "svc_AuditLog" where entity = 'svc_Notification' order by position limit 3`,
  )
  expect(changes.map(({ action }) => action)).toEqual(['create', 'update', 'update'])
})

import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { startProcess } from '../support/processes.ts'

type Said = { readonly code: number | null; readonly lines: readonly string[] }

const tenants = (api: Api): Record<string, string> =>
  api.runtime.config.tenancy.enabled ? { MULTI_TENANT: 'true' } : {}

const project = async (api: Api, ...args: string[]): Promise<Said> => {
  const env = { ...testEnv(api.database.url), ...tenants(api) }
  const daybook = startProcess('src/cli/main.ts', ['project', ...args], env)
  const { code } = await daybook.exited
  return { code, lines: daybook.lines.map(({ text }) => text) }
}

const directory = async (): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'daybook-project-'))
  onTestFinished(() => rm(dir, { recursive: true }))
  return dir
}

const contentOf = async (dir: string): Promise<Record<string, string>> => {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true })
  const paths = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  const texts = await Promise.all(
    paths.sort().map(async (path) => [path.slice(dir.length + 1), await readFile(path, 'utf8')]),
  )
  return Object.fromEntries(texts)
}

const edit = async (file: string, change: (json: any) => void): Promise<void> => {
  const json = JSON.parse(await readFile(file, 'utf8'))
  change(json)
  await writeFile(file, JSON.stringify(json))
}

const ok = async (api: Api, method: string, path: string, body?: unknown): Promise<any> => {
  const answer = await api.admin(method, path, body)
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.text}`)
  return answer.body
}

const as = ['--as', administrator.email]

/** One of everything that a project holds: relations in a ring, a junction, fields on users, and names in place of ids. */
async function define(api: Api): Promise<void> {
  await ok(api, 'POST', '/schemas', {
    collectionName: 'note',
    schema: {
      usertrack: true,
      fields: { title: { type: 'String', allowNull: false }, amount: { type: 'Integer' }, hidden: { type: 'String' } },
      indexes: [{ fields: ['title'] }],
    },
  })
  const tag = { fields: { name: { type: 'String' }, of: { relType: 'BelongsTo', target: 'note' } } }
  await ok(api, 'POST', '/schemas', { collectionName: 'tag', schema: tag })
  await ok(api, 'PATCH', '/schemas/note', {
    schema: {
      fields: {
        main: { relType: 'BelongsTo', target: 'tag' },
        tags: { relType: 'BelongsToMany', target: 'tag', through: 'note_tag' },
      },
    },
  })
  await ok(api, 'PATCH', '/schemas/svc_User', { schema: { fields: { nickname: { type: 'String' } } } })
  const rule = await ok(api, 'POST', '/acls', {
    name: 'Cheap',
    conditions: { amount: { lt: 10 } },
    fields: ['title', 'amount'],
  })
  const reader = (await ok(api, 'POST', '/items/svc_Role', { name: 'Reader / all' })).data.id
  const writer = (
    await ok(api, 'POST', '/items/svc_Role', { name: 'writer', canInviteRoleIds: [reader, crypto.randomUUID()] })
  ).data.id
  await ok(api, 'POST', '/permissions', { role_Id: reader, collection: 'note', action: 'read', acl_Ids: [rule.id] })
  const rights = {
    role_Id: writer,
    collection: 'note',
    fields: ['title'],
    conditions: { userCreated_Id: '$CURRENT_USER' },
  }
  for (const action of ['create', 'read', 'update']) await ok(api, 'POST', '/permissions', { ...rights, action })
  await ok(api, 'POST', '/items/svc_Workflow', {
    id: 'welcome-notes',
    name: 'Welcome notes',
    status: 'active',
    trigger_type: 'hook',
    trigger_hook_collection: 'note',
    trigger_hook_action: 'items.create.after',
    allowed_roles: [writer],
    flow_data: {
      nodes: [
        { id: 'start', type: 'trigger', data: {} },
        { id: 'call', type: 'http', data: { url: 'https://example.com', headers: { key: '{{ secrets.example }}' } } },
        { id: 'count', type: 'stats', data: { collection: 'note', operation: 'count', bypassPermissions: true } },
      ],
      edges: [
        { id: '1', source: 'start', target: 'call' },
        { id: '2', source: 'call', target: 'count' },
      ],
    },
  })
  await ok(api, 'POST', '/items/svc_Template', {
    type: 'reminder',
    subject: 'Notes',
    body: '<p>Dear {{ name }},</p>\n<p>notes</p>',
  })
  const parent = (await ok(api, 'POST', '/items/svc_Page', { name: 'Home', slug: 'home' })).data.id
  const page = (await ok(api, 'POST', '/items/svc_Page', { name: 'Notes', slug: 'all notes', parent_Id: parent })).data
    .id
  for (const type of ['table', 'chart'])
    await ok(api, 'POST', '/items/svc_Block', {
      page_Id: page,
      type,
      collection: 'note',
      config: { zoom: 1, all: true },
    })
  await ok(api, 'POST', '/views', {
    name: 'Cheap ones',
    page: 'data',
    collection: 'note',
    query: { sort: 'amount' },
    role_Id: writer,
  })
  await ok(api, 'POST', '/views', { name: 'my own', page: 'data', collection: 'note', query: {} })
  await ok(api, 'PATCH', '/settings', {
    project_name: 'Notes of all',
    smtp_host: 'smtp.example.com',
    session_limits: { default: { web: 5 }, roles: { [writer]: { web: 2 }, [crypto.randomUUID()]: { web: 1 } } },
  })
  await ok(api, 'POST', '/items/note', { title: 'a row' })
}

it.each([
  ['', {}],
  [', both with tenants', { MULTI_TENANT: 'true' }],
] as [string, Record<string, string>][])(
  'moves the definition of an installation to an empty one, by names%s',
  async (_, env) => {
    const [source, target] = await Promise.all([startApi(env), startApi(env)])
    const dir = await directory()
    const again = await directory()
    await define(source)
    expect(await project(source, 'export', dir)).toEqual({
      code: 0,
      lines: [expect.stringMatching(/files, \d+ written, 0 removed$/)],
    })
    const files = await contentOf(dir)
    expect(Object.keys(files)).toEqual([
      ...['collections/note.json', 'collections/note_tag.json', 'collections/svc_User.json', 'collections/tag.json'],
      ...['pages/all notes.json', 'pages/home.json', 'project.json'],
      ...[
        'roles/Reader %2F all.json',
        'roles/administrator.json',
        'roles/public.json',
        'roles/user.json',
        'roles/writer.json',
      ],
      ...['rules/Cheap.json', 'settings.json', 'templates/reminder.html', 'templates/reminder.json'],
      ...['views/data-note-writer-Cheap ones.json', 'workflows/welcome-notes.json'],
    ])
    const all = Object.values(files).join('\n')
    expect(all).not.toMatch(/"createdAt"|"timestamp"|smtp|[0-9a-f]{8}-[0-9a-f]{4}-/)
    expect(files['templates/reminder.html']).toBe('<p>Dear {{ name }},</p>\n<p>notes</p>')

    expect(await project(target, 'apply', dir)).toEqual({
      code: 1,
      lines: [
        'views/data-note-writer-Cheap ones.json: views[0]: a view needs an owner: name an administrator by --as EMAIL',
      ],
    })
    const position = await target.position()
    const dry = await project(target, 'apply', dir, ...as, '--dry-run')
    expect(dry.lines).toContain(
      'create collection note: field title added, field amount added, field hidden added, field main added, field tags added',
    )
    expect(dry.lines).toContain('create permission of writer to update note')
    expect(dry.lines).toContain('warning: workflow welcome-notes bypasses permissions in count')
    expect(dry.lines).toContain('warning: workflow welcome-notes needs the secret example, which is not set here')
    expect(dry).toMatchObject({ code: 0 })
    expect(await target.position()).toBe(position)

    const applied = await project(target, 'apply', dir, ...as)
    expect(applied.lines.at(-1)).toMatch(/created, \d+ changed, 0 dropped; request \S+$/)
    await project(target, 'export', again)
    expect(await contentOf(again)).toEqual(files)
    expect(await project(target, 'apply', dir, ...as)).toEqual({ code: 0, lines: ['Nothing to change'] })

    const log = await target.log(position)
    const [{ id: admin }] = await target.sql(`select id from "svc_User" where email = $1`, [administrator.email])
    expect(
      log
        .filter(({ type }) => type === 'schema')
        .map(({ entityId, action }) => [entityId, action])
        .sort(),
    ).toEqual([
      ['note', 'changed'],
      ['note_tag', 'changed'],
      ['svc_User', 'changed'],
      ['tag', 'changed'],
    ])
    expect(log.some(({ type, action }) => type === 'system' && action === 'settings')).toBe(true)
    expect(new Set(log.map(({ userId }) => userId))).toEqual(new Set([admin]))
    const [workflow] = await target.sql(`select "authority_Id", status from "svc_Workflow"`)
    expect(workflow).toEqual({ authority_Id: admin, status: 'active' })
    expect(await target.sql('select * from note')).toEqual([])
  },
)

it('applies what has changed in files, and drops only what it is asked to', async () => {
  const api = await startApi()
  const dir = await directory()
  await define(api)
  await project(api, 'export', dir)
  await edit(join(dir, 'collections/note.json'), ({ schemas: [{ schema }] }) => {
    schema.fields.color = { type: 'String' }
    delete schema.fields.hidden
  })
  await edit(join(dir, 'roles/writer.json'), ({ roles: [role] }) => {
    role.permissions = role.permissions.filter(({ action }: any) => action !== 'update')
    role.permissions.find(({ action }: any) => action === 'read').fields = []
  })
  await edit(join(dir, 'workflows/welcome-notes.json'), ({ workflows: [workflow] }) => {
    workflow.name = 'Greetings'
  })
  await edit(join(dir, 'pages/all notes.json'), ({ pages: [page] }) => {
    page.blocks[1].config = { zoom: 2 }
  })
  await rm(join(dir, 'rules/Cheap.json'))
  await rm(join(dir, 'roles/Reader %2F all.json'))
  await edit(join(dir, 'roles/writer.json'), ({ roles: [role] }) => {
    role.canInviteRoles = []
  })
  await rm(join(dir, 'collections/svc_User.json'))
  const { code, lines } = await project(api, 'apply', dir, ...as)
  expect(code).toBe(0)
  expect([...lines].sort()).toEqual([
    expect.stringMatching(/^0 created, 5 changed, 0 dropped; request /),
    'change collection note: field color added',
    'change page all notes: blocks changed',
    'change permission of writer to read note: fields changed',
    'change role writer: canInviteRoles changed',
    'change workflow welcome-notes: name changed',
    'left   note: field hidden',
    'left   permission of Reader / all to read note',
    'left   permission of writer to update note',
    'left   role Reader / all',
    'left   rule Cheap',
    'left   svc_User: field nickname',
    'warning: workflow welcome-notes bypasses permissions in count',
    'warning: workflow welcome-notes needs the secret example, which is not set here',
  ])
  expect((await ok(api, 'GET', '/items/note?fields=color,hidden')).data).toEqual([{ color: null, hidden: null }])
  expect(await api.sql(`select config from "svc_Block" order by type`)).toHaveLength(2)

  const held = `insert into "svc_UserRole" ("user_Id", "role_Id")
    select u.id, r.id from "svc_User" u, "svc_Role" r where u."firstName" = 'Bo' and r.name = 'Reader / all'`
  await api.sql(`insert into "svc_User" ("firstName") values ('Bo')`)
  await api.sql(held)
  const position = await api.position()
  const inUse = await project(api, 'apply', dir, ...as, '--drop')
  expect(inUse).toEqual({ code: 1, lines: [expect.stringMatching(/^role Reader \/ all: /)] })
  expect(await api.position()).toBe(position)
  await api.sql(`delete from "svc_UserRole" where "user_Id" = (select id from "svc_User" where "firstName" = 'Bo')`)

  const dropped = await project(api, 'apply', dir, ...as, '--drop', '--json')
  const report = JSON.parse(dropped.lines.join('\n'))
  expect(report.steps.map(({ do: what, what: name }: any) => `${what} ${name}`).sort()).toEqual([
    'change collection note',
    'change collection svc_User',
    'drop permission of Reader / all to read note',
    'drop permission of writer to update note',
    'drop role Reader / all',
    'drop rule Cheap',
  ])
  expect(report.left).toEqual([])
  expect((await api.admin('GET', '/items/note?fields=hidden')).status).toBe(400)

  for (const name of ['note', 'tag', 'note_tag']) await rm(join(dir, `collections/${name}.json`))
  await rm(join(dir, 'workflows/welcome-notes.json'))
  const gone = await project(api, 'apply', dir, ...as, '--drop')
  expect(gone.lines).toContain('drop   collection note')
  expect(gone.lines).toContain('warning: note goes with 1 rows')
  expect(gone.code).toBe(0)
  expect((await project(api, 'apply', dir, '--drop')).lines).toEqual(['Nothing to change'])
})

it('changes nothing where a file is refused, and says which', async () => {
  const api = await startApi()
  const dir = await directory()
  await define(api)
  await project(api, 'export', dir)
  const files = await contentOf(dir)
  const position = await api.position()
  const note = join(dir, 'collections/note.json')
  const refusedBy = async (path: string, text: string): Promise<string> => {
    await writeFile(join(dir, path), text)
    const { code, lines } = await project(api, 'apply', dir, ...as, '--drop')
    expect(code).toBe(1)
    await rm(join(dir, path))
    if (files[path] !== undefined) await writeFile(join(dir, path), files[path])
    return lines.join('\n')
  }
  await edit(note, ({ schemas: [{ schema }] }) => {
    schema.fields.color = { type: 'String' }
  })
  const writer = JSON.parse(files['roles/writer.json']!)
  const permissions = (change: object) =>
    JSON.stringify({
      ...writer,
      roles: [{ ...writer.roles[0], permissions: [{ ...writer.roles[0].permissions[0], ...change }] }],
    })
  expect(await refusedBy('roles/writer.json', '{')).toMatch(/^roles\/writer\.json: is not JSON/)
  expect(await refusedBy('role/x.json', '{}').catch(() => 'no directory')).toBe('no directory')
  expect(await refusedBy('x.json', '{}')).toMatch(/^x\.json: no part of a project/)
  expect(await refusedBy('roles/writer.json', permissions({ field: [] }))).toMatch(
    /^roles\/writer\.json: roles\[0\]\.permissions\[0\]\.field: is no member/,
  )
  expect(await refusedBy('roles/writer.json', permissions({ conditions: { colour: 1 } }))).toMatch(
    /^roles\/writer\.json: roles\[0\]\.permissions\[0\]\.conditions: /,
  )
  expect(await refusedBy('roles/writer.json', permissions({ acls: ['Nothing'] }))).toMatch(/there is no rule Nothing/)
  expect(
    await refusedBy('collections/tag.json', files['collections/tag.json']!.replace('"String"', '"Strin"')),
  ).toMatch(/^collections\/tag\.json: .*fields\.name/)
  expect(await refusedBy('settings.json', '{"settings":{"smtp_host":"smtp.example.com"}}')).toMatch(
    /^settings\.json: settings\.smtp_host/,
  )
  expect(
    await refusedBy(
      'workflows/welcome-notes.json',
      files['workflows/welcome-notes.json']!.replace('"stats"', '"stat"'),
    ),
  ).toMatch(/^workflows\/welcome-notes\.json: workflows\[0\]: .*stat/)
  expect(await api.position()).toBe(position)
  const columns = await api.sql(`select column_name from information_schema.columns where table_name = 'note'`)
  expect(columns.map(({ column_name }) => column_name)).not.toContain('color')
  expect((await project(api, 'apply', tmpdir())).lines[0]).toMatch(/project\.json: it is missing/)
  expect((await project(api, 'apply', dir, '--as', 'nobody@example.com')).lines).toEqual([
    '--as: nobody@example.com is no active administrator',
  ])
  expect((await project(api, 'aply')).code).toBe(2)
})

it('takes the files of the other exports, and writes such as they import', async () => {
  const [source, target, third] = await Promise.all([startApi(), startApi(), startApi()])
  const [dir, again] = [await directory(), await directory()]
  await define(source)
  await project(source, 'export', dir)
  const files = await contentOf(dir)
  for (const path of Object.keys(files)) if (/^(collections|roles|workflows)\//.test(path)) await rm(join(dir, path))
  const put = async (path: string, json: unknown) => {
    await mkdir(dirname(join(dir, path)), { recursive: true })
    await writeFile(join(dir, path), JSON.stringify(json))
  }
  await put('collections/schemas.json', await ok(source, 'GET', '/schemas-export'))
  const roles = await ok(source, 'GET', '/permissions-export')
  await put('roles/permissions.json', roles)
  const workflows = await ok(source, 'POST', '/workflows/export', { workflowIds: ['welcome-notes'] })
  workflows.workflows[0].allowed_roles = ['writer']
  await put('workflows/workflows.json', workflows)
  expect((await project(target, 'apply', dir, ...as)).code).toBe(0)
  await project(target, 'export', again)
  const moved = await contentOf(again)
  const known = Object.keys(files).filter((path) => !path.startsWith('roles/'))
  expect(Object.fromEntries(known.map((path) => [path, moved[path]]))).toEqual(
    Object.fromEntries(known.map((path) => [path, files[path]])),
  )
  expect((await ok(target, 'GET', '/permissions-export')).roles).toEqual(roles.roles)

  const schemas = Object.keys(files).filter((path) => path.startsWith('collections/'))
  await ok(third, 'POST', '/schemas/import', { schemas: schemas.flatMap((path) => JSON.parse(files[path]!).schemas) })
  await ok(third, 'POST', '/acls', JSON.parse(files['rules/Cheap.json']!).rules[0])
  for (const name of ['writer', 'Reader %2F all']) {
    const form = new FormData()
    form.append(
      'rolesPermissions',
      new Blob([files[`roles/${name}.json`]!], { type: 'application/json' }),
      'roles.json',
    )
    const { headers, body } = await multipart(form)
    const answer = await third.admin('POST', '/permissions-import', body, headers)
    expect([answer.status, answer.body.changes.errors]).toEqual([200, []])
  }
  const imported = await ok(third, 'POST', '/workflows/import', JSON.parse(files['workflows/welcome-notes.json']!))
  expect(imported.summary).toMatchObject({ created: 1, errors: 0 })
  const [row] = await third.sql(
    `select allowed_roles = jsonb_build_array((select id from "svc_Role" where name = 'writer')) as same from "svc_Workflow"`,
  )
  expect(row).toEqual({ same: true })
})

const multipart = async (form: FormData) => {
  const request = new Request('http://localhost/', { method: 'POST', body: form })
  return { headers: { 'content-type': request.headers.get('content-type')! }, body: await request.text() }
}

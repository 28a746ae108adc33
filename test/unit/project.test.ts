import { describe, expect, it } from 'vitest'
import type { CollectionDefinition } from '../../src/catalog/catalog.ts'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { systemCollections } from '../../src/catalog/system-definitions.ts'
import { filesOf, kinds, type Part, readProject } from '../../src/features/operations/project/files.ts'
import { type Installation, plan, type StoredPart } from '../../src/features/operations/project/plan.ts'

const note: CollectionDefinition = {
  collectionName: 'note',
  schema: { fields: { title: { type: 'String' }, amount: { type: 'Integer' } } },
}
const role: Part = { kind: 'roles', key: 'writer', value: { name: 'writer', canInviteRoles: [] } }
const read: Part = {
  kind: 'permissions',
  key: 'writer\nnote\nread',
  value: {
    ...{ collection: 'note', action: 'read', fields: ['title'] },
    ...{ conditions: null, relConditions: null, defaultValues: null },
  },
}
const page: Part = { kind: 'pages', key: 'home', value: { slug: 'home', name: 'Home' } }

const stored = (part: Part, more: Partial<StoredPart> = {}): StoredPart => ({
  ...part,
  id: `id of ${part.key}`,
  ...more,
})
const installed = (parts: readonly StoredPart[] = [], definitions = [note]): Installation => ({
  catalog: compileCatalog([...systemCollections, ...definitions]),
  parts,
})
const files = (parts: readonly Part[], schemas = [note], holds: readonly string[] = kinds) =>
  readProject(
    new Map(
      [...filesOf({ schemas, parts }), ['project.json', JSON.stringify({ version: '1.0', holds })]].map(
        ([path, text]) => [path!, text!] as const,
      ),
    ),
  )

const shown = (planned: ReturnType<typeof plan>) => ({
  steps: [
    ...planned.schemaSteps.map(({ do: what, collection, differences }) => [what, collection, ...differences].join(' ')),
    ...planned.steps.map(
      (step) => `${step.do} ${(step.do === 'drop' ? step.stored : step.part).key.replaceAll('\n', ' ')}`,
    ),
  ],
  left: planned.left,
})

describe('plan', () => {
  it('has nothing to do for what is there', () => {
    const planned = plan(files([role, read]), installed([stored(role), stored(read)]), { drop: false })
    expect(shown(planned)).toEqual({ steps: [], left: [] })
    expect(planned.schemas).toEqual([])
  })

  it('creates what is missing, and changes the members that differ', () => {
    const before = { ...read, value: { ...read.value, fields: ['title', 'amount'] } }
    const planned = plan(files([role, read, page]), installed([stored(role), stored(before)], []), { drop: false })
    expect(shown(planned)).toEqual({
      steps: ['create note field title added field amount added', 'create home', 'change writer note read'],
      left: [],
    })
    expect(planned.steps[1]).toMatchObject({
      members: ['fields'],
      part: { file: 'roles/writer.json' },
    })
  })

  it('lists what the files do not name, and drops it only where it is asked to', () => {
    const narrow: CollectionDefinition = { ...note, schema: { fields: { title: { type: 'String' } } } }
    const other = { collectionName: 'other', schema: { fields: { title: { type: 'String' } } } }
    const here = installed([stored(role), stored(read), stored(page)], [note, other])
    expect(shown(plan(files([role], [narrow]), here, { drop: false }))).toEqual({
      steps: [],
      left: ['collection other', 'note: field amount', 'permission of writer to read note', 'page home'],
    })
    expect(shown(plan(files([role], [narrow]), here, { drop: true }))).toEqual({
      steps: ['change note field amount removed', 'drop other', 'drop writer note read', 'drop home'],
      left: [],
    })
  })

  it('keeps to the kinds that the project holds, and what every installation has', () => {
    const here = installed([stored(role, { stays: true }), stored(page)])
    expect(shown(plan(files([], [note], ['collections', 'roles']), here, { drop: true }))).toEqual({
      steps: [],
      left: [],
    })
    expect(shown(plan(files([], [], ['pages']), here, { drop: true }))).toEqual({ steps: ['drop home'], left: [] })
  })

  it('takes a member that a file leaves out for as it is, but not of a permission', () => {
    const here = installed([stored(page), stored(read), stored(role)])
    const brief = files([role, read, { ...page, value: { slug: 'home' } }])
    expect(shown(plan(brief, here, { drop: false })).steps).toEqual([])
    const open = { ...read, value: { collection: 'note', action: 'read' } }
    expect(shown(plan(files([role, open, page]), here, { drop: false })).steps).toEqual(['change writer note read'])
  })

  it('tells what does not fit before anything is tried', () => {
    const wrong = { collectionName: 'note', schema: { fields: { title: { type: 'Strin' } } } }
    expect(plan(files([], [wrong]), installed(), { drop: false }).errors).toEqual([
      { collectionName: 'note', error: expect.stringContaining('fields.title.type') },
    ])
  })
})

describe('files', () => {
  it('are the same text for the same content in any order', () => {
    const parts = [page, role, read]
    const text = [...filesOf({ schemas: [note], parts })]
    expect([...filesOf({ schemas: [note], parts: parts.toReversed() })]).toEqual(text)
    const { parts: again, schemas } = readProject(new Map(text))
    expect([...filesOf({ schemas, parts: again })]).toEqual(text)
  })

  it('have names that every file system can hold, each its own', () => {
    const names = ['../etc', 'A', 'a', 'ü/b', '.hidden']
    const parts = names.map((name): Part => ({ kind: 'rules', key: name, value: { name } }))
    expect([...filesOf({ schemas: [], parts }).keys()].filter((path) => path.startsWith('rules'))).toEqual([
      ...['rules/%2E.%2Fetc.json', 'rules/%2Ehidden.json', 'rules/%C3%BC%2Fb.json', 'rules/A.json', 'rules/a~2.json'],
    ])
  })

  it('have the body of a template beside it, whatever its name', () => {
    const parts = ['Mail', 'mail', '../mail'].map(
      (type): Part => ({ kind: 'templates', key: type, value: { type, body: type } }),
    )
    const all = filesOf({ schemas: [], parts })
    expect([...all.keys()].filter((path) => path.endsWith('.html'))).toEqual([
      ...['templates/%2E.%2Fmail.html', 'templates/Mail.html', 'templates/mail~2.html'],
    ])
    expect(readProject(all).parts.map(({ value }) => [value.type, value.body])).toEqual([
      ...[
        ['../mail', '../mail'],
        ['Mail', 'Mail'],
        ['mail', 'mail'],
      ],
    ])
  })

  it.each([
    [{ 'rules/a.json': '[]' }, 'rules/a.json: rules: must be a list'],
    [{ 'rules/a.json': '{"rules":[{}]}' }, 'rules/a.json: rules[0].name: is required, as text'],
    [
      { 'rules/a.json': '{"rules":[{"name":"a"}]}', 'rules/b.json': '{"rules":[{"name":"a"}]}' },
      'rules/b.json: rules[0]: rule a is in rules/a.json (rules[0]) too',
    ],
    [{ 'templates/a.json': '{"templates":[{"type":"a"}]}' }, /templates\/a\.html is missing/],
    [{ 'templates/a.html': '' }, /templates\/a\.json is missing/],
    [{ 'project.json': '{"version":"2.0","holds":[]}' }, /^project\.json: version: /],
    [{ 'role/a.json': '{}' }, /^role\/a\.json: no part of a project/],
  ])('are refused with their place: %j', (more, message) => {
    const all = { 'project.json': JSON.stringify({ version: '1.0', holds: kinds }), ...more }
    expect(() => readProject(new Map(Object.entries(all)))).toThrow(message)
  })
})

import { openAsBlob } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { describedAccess, grantedAccess } from '../../console/src/app/access.ts'
import { collectionOf, kindsOf } from '../../console/src/app/definition.ts'
import { inWords, ofFields } from '../../console/src/app/refusals.ts'
import { readFilter, writeFilter } from '../../console/src/pages/data/filter.ts'
import { encodingOf, readStart, recordsOf, renamed } from '../../console/src/pages/data/import-file.ts'
import { operatorNames } from '../../console/src/pages/data/operators.ts'
import { parseValue, textOf } from '../../console/src/pages/data/values.ts'
import { groupsOf, labelOf, textOfSetting, valueOfSetting } from '../../console/src/pages/operations/settings-form.ts'
import { type Definition, types } from '../../console/src/pages/schema/definitions.ts'
import { boxWidth, layoutOf } from '../../console/src/pages/schema/layout.ts'
import { bottomAbove } from '../../console/src/ui/room.ts'
import { fieldTypes } from '../../src/catalog/fields.ts'
import { kindOf, settingsKeys } from '../../src/features/settings/settings.ts'
import { findOperator, operatorNames as namesOfLanguage } from '../../src/query/operators.ts'

describe('the filter builder of the console', () => {
  const isRelation = (path: string) => ['category', 'comments'].includes(path)
  const back = (filter: Readonly<Record<string, unknown>>) => writeFilter(readFilter(filter, isRelation))

  it('gives every filter back as it was', () => {
    for (const filter of [
      { name: 'a' },
      { name: null },
      { price: { gt: 5, lt: 9 } },
      { 'category.name': { startsWith: 'A' }, state: { in: ['a', 'b'] } },
      { OR: [{ name: 'a' }, { AND: [{ price: 1 }, { price: 2 }] }] },
      { NOT: { name: 'a', state: 'b' } },
      { category: { name: 'a', id: 5 } },
      { category: { isNull: true } },
      { at: { gt: '2026-01-01', cast: 'date' } },
      { attributes: { jsonbContains: { color: 'red' } } },
      { name: { eq: { a: 1 } } },
    ]) {
      const once = back(filter)!
      expect(back(once)).toEqual(once)
    }
    expect(back({ price: { gt: 5, lt: 9 } })).toEqual({ AND: [{ price: { gt: 5 } }, { price: { lt: 9 } }] })
    expect(back({ name: null })).toEqual({ name: { isNull: true } })
    expect(back({ category: { name: 'a', id: 5 } })).toEqual({ category: { name: 'a', id: 5 } })
    expect(back({ OR: [{ a: 1 }, { NOT: { b: 2 } }] })).toEqual({ OR: [{ a: 1 }, { NOT: { b: 2 } }] })
    expect(back({})).toBeUndefined()
  })

  it('offers every operator of the query language', () => {
    // These say what others say.
    const offered = new Set([...operatorNames(), 'not', 'is'])
    const known = new Set(namesOfLanguage().map((name) => findOperator(name)!.name))
    expect([...known].filter((name) => !offered.has(name))).toEqual([])
    expect([...offered].filter((name) => !known.has(name))).toEqual([])
  })
})

describe('values that are edited in the console', () => {
  it('come back as they were, and say what is wrong', () => {
    for (const [kind, value] of [
      ['text', ' a '],
      ['integer', 5],
      ['integer', '9007199254740993'],
      ['decimal', '12.50'],
      ['float', 0.5],
      ['boolean', false],
      ['datetime', '2026-03-14T09:26:53.000Z'],
      ['datetime without zone', '2026-03-14T09:26:53Z'],
      ['json', { a: [1, null] }],
      ['array', ['a', 'b']],
    ] as const)
      expect(parseValue({ kind }, textOf({ kind }, value))).toEqual(value)
    for (const kind of ['integer', 'json', 'date', 'enum'] as const) expect(parseValue({ kind }, '')).toBeNull()
    for (const [kind, text] of [
      ['integer', '1.5'],
      ['decimal', '1e5'],
      ['float', 'x'],
      ['json', '{'],
      ['datetime', 'soon'],
    ] as const)
      expect(() => parseValue({ kind }, text)).toThrow(/^This /)
  })

  it('of lists are one member per line, where that gives the same list again', () => {
    for (const [element, value, text] of [
      ['text', ['a', 'b c', '5'], 'a\nb c\n5'],
      ['integer', [1, '9007199254740993'], '1\n9007199254740993'],
      ['decimal', ['12.50'], '12.50'],
      ['boolean', [true, false], 'true\nfalse'],
      ['date', ['2026-03-14'], '2026-03-14'],
      ['text', [], '[]'],
      ['text', ['a', null], '["a",null]'],
      ['text', ['', ' a'], '[""," a"]'],
      ['text', ['[x]', 'y'], '[x]\ny'],
      ['text', ['[1]'], '["[1]"]'],
      ['enum', ['[x'], '[x'],
      ['text', ['x', '[y]'], 'x\n[y]'],
      ['text', [['a'], ['b']], '[["a"],["b"]]'],
      ['datetime', ['2026-03-14T09:26:53.123Z'], '["2026-03-14T09:26:53.123Z"]'],
    ] as const) {
      const field = { kind: 'array', element } as const
      expect(textOf(field, value)).toBe(text)
      expect(parseValue(field, text)).toEqual(value)
    }
    expect(parseValue({ kind: 'array', element: 'text' }, ' \n')).toBeNull()
    expect(() => parseValue({ kind: 'array', element: 'integer' }, '1\ntwo')).toThrow('This must be a whole number.')
    expect(() => parseValue({ kind: 'array', element: 'boolean' }, 'yes')).toThrow('This must be true or false.')
    expect(() => parseValue({ kind: 'array', element: 'integer' }, '[1')).toThrow(/^This is no JSON/)
  })

  it('keep all digits of the numbers in lists and ranges, and tell of too long a text', () => {
    const digits = '1.12345678901234567890'
    expect(parseValue({ kind: 'array', element: 'decimal' }, `[${digits},2]`)).toEqual([digits, 2])
    expect(parseValue({ kind: 'range' }, `{"lower":${digits},"upper":2}`)).toEqual({ lower: digits, upper: 2 })
    for (const kind of ['json', 'vector', 'geometry'] as const)
      expect(parseValue({ kind }, `[${digits}]`)).toEqual([Number(digits)])
    const field = { kind: 'text', maxLength: 3 } as const
    expect(parseValue(field, '🙂🙂🙂')).toBe('🙂🙂🙂')
    expect(() => parseValue(field, 'abcd')).toThrow('At most 3 characters: these are 4.')
  })

  it('are lists by either spelling of the type', () => {
    expect(kindsOf('Array', { type: 'String' })).toEqual(kindsOf('Array_String'))
    expect(kindsOf('Array', { type: 'Decimal' })).toEqual({ kind: 'array', element: 'decimal' })
    expect(kindsOf('ENUM', ['a'])).toEqual({ kind: 'enum', element: undefined })
  })
})

describe('files that are imported in the console', () => {
  it('are read to see their columns, and renamed without touching a row', async () => {
    expect(recordsOf('a,"b ""c"""\r\n1,"x\ny"\n\n2,', 9).records).toEqual([
      ['a', 'b "c"'],
      ['1', 'x\ny'],
      ['2', ''],
    ])
    const file = new File(['\uFEFFTitle,Größe,c\r\nä,"1, 2",3\r\n'], 'rows.csv', { type: 'text/csv' })
    const start = await readStart(file, 'utf-8')
    expect(start).toMatchObject({ columns: ['Title', 'Größe', 'c'], rows: [{ Title: 'ä', Größe: '1, 2', c: '3' }] })
    const sent = await renamed(start, { Title: 'name', Größe: 'size' })
    expect(await sent.text()).toBe('name,size,-2\r\nä,"1, 2",3\r\n')
    const unix = await readStart(new File(['a,b\n1,2\n'], 'rows.csv'), 'utf-8')
    expect(await (await renamed(unix, { a: 'name' })).text()).toBe('name,-1\n1,2\n')
    const spreadsheet = new File(['Title;"Größe; in cm";c\r\nä;1,5;"a;b"\r\n'], 'rows.csv')
    const read = await readStart(spreadsheet, 'utf-8')
    expect(read).toMatchObject({ columns: ['Title', 'Größe; in cm', 'c'], rows: [{ Title: 'ä', c: 'a;b' }] })
    const named = await renamed(read, { Title: 'name', c: 'note' })
    expect(await named.text()).toBe('name;-1;note\r\nä;1,5;"a;b"\r\n')
    await expect(readStart(new File(['{}'], 'a.json'), 'utf-8')).rejects.toThrow('a list of objects')
  })

  it('keep every member of JSON rows that has a field, with all its digits', async () => {
    const read = (rows: string) => readStart(new File([rows], 'rows.json', { type: 'application/json' }), 'utf-8')
    const one = await read('[{"Title":"a","x":1},{"Title":"b","at":[1.12345678901234567890,2]}]')
    expect(one.columns).toEqual(['Title', 'x', 'at'])
    expect(await (await renamed(one, { Title: 'name', at: 'at' })).text()).toBe(
      '[{"name":"a"},{"name":"b","at":[1.12345678901234567890,2]}]',
    )
    const late = await read(JSON.stringify([...Array.from({ length: 500 }, () => ({ a: 1 })), { b: 2 }]))
    expect(late.columns).toEqual(['a', 'b'])
    expect(late.rows).toHaveLength(200)
  })

  it('are refused where they are no longer as they were chosen', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'console-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const path = join(folder, 'rows.csv')
    await writeFile(path, 'name\na\n')
    const file = (await openAsBlob(path)) as File
    const start = await readStart(Object.assign(file, { name: 'rows.csv' }), 'utf-8')
    await writeFile(path, 'name\nmended\n')
    await expect(renamed(start, { name: 'name' })).rejects.toThrow('The file has changed: choose it again.')
  })

  it('are read in the encoding that their beginning speaks for', async () => {
    const utf16 = Buffer.from('\ufeffä;b\n1;2\n', 'utf16le')
    for (const [bytes, encoding, columns] of [
      [Buffer.from('ä;b\n1;2\n'), 'utf-8', ['ä', 'b']],
      [Buffer.from('\xe4;\x80\n1;2\n', 'latin1'), 'windows-1252', ['ä', '€']],
      [utf16, 'utf-16le', ['ä', 'b']],
      [Buffer.from(utf16).swap16(), 'utf-16be', ['ä', 'b']],
    ] as const) {
      const file = new File([bytes], 'rows.csv')
      expect(await encodingOf(file)).toBe(encoding)
      const start = await readStart(file, encoding)
      expect(start.columns).toEqual(columns)
      expect(await (await renamed(start, { [columns[0]]: 'a' })).text()).toBe('a;-1\n1;2\n')
    }
    const broken = readStart(new File([utf16.subarray(0, -1)], 'rows.csv'), 'utf-16le')
    await expect(broken).rejects.toThrow('The file cannot be read in this encoding')
  })
})

describe('a definition in the console', () => {
  it('has the key first, columns of relations where these stand, and stamps last', () => {
    const { fields, key, titleField, relations } = collectionOf({
      collectionName: 'product',
      schema: {
        fields: {
          createdAt: { type: 'DateTime' },
          id: { type: 'UUID', primaryKey: true },
          title: { type: 'String' },
          category: { relType: 'BelongsTo', target: 'category' },
          price: { type: 'Decimal' },
          tags: { relType: 'BelongsToMany', target: 'tag', through: 'product_tag' },
          category_Id: { type: 'Integer' },
        },
      },
    })
    expect(fields.map(({ name }) => name)).toEqual(['id', 'title', 'category_Id', 'price', 'createdAt'])
    expect({ key, titleField }).toEqual({ key: 'id', titleField: 'title' })
    expect(relations.map(({ name, kind }) => [name, kind])).toEqual([
      ['category', 'one'],
      ['tags', 'links'],
    ])
  })
})

describe('the schema page of the console', () => {
  it('offers every type of a field', () => {
    // Other spellings of types that are offered.
    const synonyms = ['TEXT', 'Real', 'DOUBLE', 'JSONB']
    const known = Object.keys(fieldTypes).filter((name) => !synonyms.includes(name))
    expect(Object.keys(types).sort()).toEqual(known.sort())
  })

  it('lays collections out without overlaps, keys left of what they name, whatever circles there are', () => {
    const collection = (collectionName: string, ...targets: readonly string[]): Definition => ({
      collectionName,
      schema: {
        fields: {
          name: { type: 'String' },
          ...Object.fromEntries(targets.map((target) => [`to_${target}`, { relType: 'BelongsTo', target }])),
        },
      },
    })
    const link = collection('post_tag', 'post', 'tag')
    const all = [
      collection('comment', 'post', 'person'),
      collection('post', 'person'),
      collection('person', 'team', 'person'),
      collection('team', 'person'),
      collection('tag'),
      collection('alone'),
      { ...link, schema: { ...link.schema, isJunction: true } },
    ]
    const { boxes, lines, width, height } = layoutOf(all, all)
    const at = (name: string) => boxes.find((box) => box.name === name)!
    expect(boxes.map(({ name }) => name).sort()).toEqual(['alone', 'comment', 'person', 'post', 'tag', 'team'])
    for (const a of boxes) {
      expect([a.name, a.x + boxWidth < width && a.y + a.height < height]).toEqual([a.name, true])
      for (const b of boxes.filter(({ name }) => name > a.name)) {
        const isApart = Math.abs(a.x - b.x) >= boxWidth || a.y + a.height <= b.y || b.y + b.height <= a.y
        expect([a.name, b.name, isApart]).toEqual([a.name, b.name, true])
      }
    }
    expect(at('comment').x).toBeLessThan(at('post').x)
    expect(at('post').x).toBeLessThan(at('person').x)
    expect(lines).toContainEqual(
      expect.objectContaining({ from: 'post', to: 'tag', names: ['post_tag'], isMany: true }),
    )
    expect(lines.filter(({ path }) => /NaN|undefined/.test(path))).toEqual([])
  })
})

describe('the form of the settings', () => {
  it('is typed by the kind of each key, and sends values as they were', () => {
    const kinds = Object.fromEntries([...settingsKeys].map(([name, key]) => [name, kindOf(key)]))
    expect(kinds).toMatchObject({
      ...{ project_name: 'line', email_signature: 'text', smtp_port: 'number', smtp_enabled: 'switch' },
      ...{ smtp_pass: 'secret', session_limits: 'json', metadata: 'json', project_icon_Id: 'file', timezone: 'line' },
    })
    const of = (name: string) => ({ name, expected: '', kind: kinds[name]! })
    for (const [name, value] of [
      ['project_name', 'Acme'],
      ['project_name', null],
      ['smtp_port', 587],
      ['smtp_enabled', false],
      ['metadata', { a: [1] }],
    ] as const)
      expect(valueOfSetting(of(name), textOfSetting(of(name), value))).toEqual({ value })
    expect(valueOfSetting(of('smtp_port'), 'x')).toEqual({ problem: 'This is no number' })
    expect(valueOfSetting(of('metadata'), '{')).toEqual({ problem: 'This is no JSON' })
  })

  it('shows every key once, beside what it belongs to', () => {
    const settings = [...settingsKeys].map(([name, key]) => ({ name, expected: '', kind: kindOf(key) }))
    const shown = groupsOf([...settings, { name: 'of_tomorrow', expected: '', kind: 'line' }])
    const groups = Object.fromEntries(shown.map(([title, members]) => [title, members.map(({ name }) => name)]))
    expect(Object.values(groups).flat().sort()).toEqual([...settingsKeys.keys(), 'of_tomorrow'].sort())
    expect(groups.Project).toEqual(expect.arrayContaining(['project_name', 'app_url', 'keywords']))
    expect(groups.Images).toHaveLength(7)
    expect(groups.Mail).toEqual(expect.arrayContaining(['smtp_host', 'email_signature']))
    expect(groups.More).toEqual(['session_limits', 'metadata', 'modules', 'of_tomorrow'])
    expect(['smtp_from_address', 'project_url', 'project_icon_Id'].map(labelOf)).toEqual([
      'SMTP from address',
      'Project URL',
      'Project icon',
    ])
  })
})

describe('rights in the console', () => {
  const definition = {
    collectionName: 'book',
    schema: {
      fields: {
        id: { type: 'UUID', primaryKey: true },
        title: { type: 'String' },
        price: { type: 'Decimal' },
        author: { relType: 'BelongsTo', target: 'person' },
        author_Id: { type: 'UUID' },
      },
    },
  }
  const named = (...names: string[]) => ({ properties: Object.fromEntries(names.map((name) => [name, {}])) })

  it('is what the server describes to them', () => {
    const access = describedAccess(
      {
        paths: { '/items/book': { get: {} }, '/items/book/{id}': { get: {}, patch: {} } },
        components: {
          schemas: {
            book: { properties: { ...named('id', 'title').properties, author: { $ref: '#/components/schemas/p' } } },
            p: named('name'),
            'book.change': named('title', 'price'),
          },
        },
      },
      'book',
    )
    const { fields, relations, ...book } = collectionOf(definition, access)
    expect(book).toMatchObject({ mayCreate: false, mayUpdate: true, mayDelete: false })
    expect(fields.filter(({ isHidden }) => !isHidden).map(({ name }) => name)).toEqual(['id', 'title'])
    expect(fields.filter(({ isChangeable }) => isChangeable).map(({ name }) => name)).toEqual(['title', 'price'])
    expect(fields.filter(({ isCreatable }) => isCreatable)).toEqual([])
    expect([relations[0]!.reads('name'), relations[0]!.reads('email')]).toEqual([true, false])
    expect(describedAccess({ paths: {}, components: { schemas: {} } }, 'book')).toBeUndefined()
  })

  it('is what their role grants, where the server describes nothing', () => {
    const grant = (action: string, ...fields: string[]) => ({ collection: 'book', action, fields })
    const access = grantedAccess([grant('read', '*', '-price'), grant('create', 'title', 'author.name')], 'book')
    const { fields, relations, ...book } = collectionOf(definition, access)
    expect(book).toMatchObject({ mayCreate: true, mayUpdate: false, mayDelete: false })
    expect(fields.filter(({ isHidden }) => isHidden).map(({ name }) => name)).toEqual(['price'])
    expect(fields.filter(({ isCreatable }) => isCreatable).map(({ name }) => name)).toEqual(['title'])
    expect(relations[0]!.reads('name')).toBe(false)
    expect(grantedAccess([grant('create', '*')], 'book')).toBeUndefined()
  })

  it('is everything for administrators', () => {
    const { fields, ...book } = collectionOf(definition)
    expect(book).toMatchObject({ mayCreate: true, mayUpdate: true, mayDelete: true })
    expect(fields.filter(({ isCreatable }) => !isCreatable)).toEqual([])
    expect(fields.filter(({ isChangeable }) => !isChangeable).map(({ name }) => name)).toEqual(['id'])
  })
})

describe('messages over the page', () => {
  const at = (left: number, top: number, width: number, height: number) => ({
    left,
    top,
    right: left + width,
    bottom: top + height,
  })
  const message = at(448, 702, 384, 82)

  it('stand above the bars that they would lie on, and in the window', () => {
    expect(bottomAbove([], message, 800)).toBe(16)
    expect(bottomAbove([at(264, 744, 550, 56)], message, 800)).toBe(72)
    // Beside, far above and below them.
    expect(bottomAbove([at(840, 744, 400, 56), at(264, 400, 550, 56), at(0, 900, 1280, 56)], message, 800)).toBe(16)
    // One above the other; the upper one is met only because of the lower one.
    expect(bottomAbove([at(264, 600, 550, 50), at(264, 744, 550, 56)], message, 800)).toBe(216)
    expect(bottomAbove([at(0, 50, 1280, 740)], message, 800)).toBe(702)
    expect(bottomAbove([], at(0, 0, 384, 2000), 800)).toBe(16)
  })
})

describe('a refusal in words', () => {
  const refusal = (message: string, code: string, status: number, details: unknown) =>
    inWords({ message, code, status, details, requestId: 'r1' })

  it('says everything once, and of each field what is wrong with it', () => {
    const errors = [
      { field: 'name', message: 'is required' },
      { field: 'stock', message: 'expected an integer' },
      { field: 'stock', message: 'too many' },
    ]
    const words = 'Validation failed: name: is required; stock: expected an integer; stock: too many'
    const error = refusal(words, 'VALIDATION_ERROR', 400, { errors })
    expect(error).toMatchObject({
      title: 'Validation failed',
      details: ['name: is required', 'stock: expected an integer', 'stock: too many'],
    })
    expect(ofFields(error, ['name', 'stock', 'note'])).toEqual({
      name: 'is required',
      stock: 'expected an integer; too many',
    })
    const missing = refusal('Required field missing', 'REQUIRED_FIELD_MISSING', 400, 'name')
    expect(ofFields(missing, ['name', 'names'])).toEqual({ name: 'Required field missing' })
  })

  it('gives no advice where nothing is left to do, or to look at', () => {
    const advice = (code: string, details: unknown) => refusal('No', code, 409, details).advice
    expect(advice('NOTHING_TO_UNDO', null)).toBeUndefined()
    expect(advice('UNDO_CONFLICT', { conflicts: [] })).toMatch(/^Open the request in the log/)
    expect(advice('UNIQUE_VIOLATION', 'A record with this value already exists')).toMatch(/^Something else/)
  })

  it('leads to the permissions only where these refuse, and to whom they can be granted', () => {
    const advice = (code: string, isAdmin: boolean) =>
      inWords({ message: 'No', code, status: 403, details: null, requestId: undefined }, isAdmin).advice
    for (const code of ['FORBIDDEN', 'SEARCH_NOT_GRANTED']) {
      expect(advice(code, false)).toMatch(/^Your role does not allow this/)
      expect(advice(code, true)).toBeUndefined()
    }
    expect(advice('FRESH_PROOF_REFUSED', false)).toMatch(/^Check the password/)
    expect(advice('IDENTITY_PROTECTED', false)).toBeUndefined()
  })
})

import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { migrationsDir } from '../support/migrations.ts'

const dir = migrationsDir()
let api: Api

beforeAll(async () => {
  api = await startApi({ MIGRATIONS_DIR: dir.path })
})

const scripts = () => readdirSync(dir.path).filter((file) => file.endsWith('.ts'))

afterEach(async () => {
  for (const file of scripts()) rmSync(join(dir.path, file))
  await api.admin('DELETE', '/schemas/team')
  // Files of one second have the same version in the next test.
  await api.sql(`delete from "svc_Migration" where version like '2%'`)
})

const text = { type: 'String' }

/** Makes the collection, and files that several people have written from it as it is now; their versions by name. */
async function written(changes: Readonly<Record<string, object>>): Promise<Record<string, string>> {
  const made = await api.admin('POST', '/schemas', { collectionName: 'team', schema: { fields: { name: text } } })
  expect(made.status).toBe(201)
  await api.admin('POST', '/items/team', { name: 'Reds' })
  const versions: Record<string, string> = {}
  for (const [name, schema] of Object.entries(changes)) {
    const { body } = await api.admin('PATCH', `/schemas/team?drop=true&migration=${name}`, { schema })
    versions[name] = body.migration.match(/(\w+)\.ts$/)[1]
  }
  return versions
}

const withFields = (fields: object) => ({ fields: { name: text, ...fields } })
const run = (body: object = {}) => api.admin('POST', '/migrations/run', body)
const rollback = (version: string) => api.admin('POST', `/migrations/rollback/${version}`, {})
const item = async () => (await api.admin('GET', '/items/team')).body.data[0]
const fieldsOf = async () => {
  const { body } = await api.admin('GET', '/schemas/team')
  return Object.keys(body.data.schema.fields).filter((name) => ['name', 'motto', 'color', 'rank'].includes(name))
}
const fill = async (values: object) => {
  const [{ id }] = await api.sql('select id from team')
  expect((await api.admin('PATCH', `/items/team/${id}`, values)).status).toBe(200)
}

describe('migrations that several people have written from the same collection', () => {
  it('keep what the others have added', async () => {
    const { a_motto, b_color } = await written({
      a_motto: withFields({ motto: text }),
      b_color: withFields({ color: text }),
    })
    expect((await run({ version: a_motto })).body.data.summary).toMatchObject({ completed: 1 })
    await fill({ motto: 'ever on' })
    const position = await api.position()
    expect((await run({ version: b_color })).body.data.summary).toMatchObject({ completed: 1 })
    expect(await fieldsOf()).toEqual(['name', 'motto', 'color'])
    expect(await item()).toMatchObject({ name: 'Reds', motto: 'ever on', color: null })
    const changes = await api.sql(
      `select action, changes->'after'->'schema'->'fields' as fields from "svc_AuditLog"
       where entity = 'svc_SchemaDefinition' and position > $1`,
      [position],
    )
    expect(changes.map(({ action }) => action)).toEqual(['update'])
  })

  it('keep it when the older one comes late', async () => {
    const { a_motto, b_color } = await written({
      a_motto: withFields({ motto: text }),
      b_color: withFields({ color: text }),
    })
    await run({ version: b_color })
    await fill({ color: 'red' })
    await run({ version: a_motto })
    expect(await item()).toMatchObject({ color: 'red', motto: null })
  })

  it('keep it when the earlier one is rolled back and a later one stays', async () => {
    const { a_motto } = await written({
      a_motto: withFields({ motto: text }),
      b_color: withFields({ color: text }),
    })
    await run()
    await fill({ motto: 'ever on', color: 'red' })
    expect((await rollback(a_motto!)).body.data.status).toBe('rolled_back')
    expect(await fieldsOf()).toEqual(['name', 'color'])
    expect(await item()).toMatchObject({ color: 'red' })
  })

  it('fail where both concern one member, with its name and both values, and change nothing', async () => {
    const { one, other } = await written({
      one: withFields({ motto: text }),
      other: withFields({ motto: { type: 'Integer' } }),
    })
    const { body } = await run()
    expect(body.data.summary).toMatchObject({ completed: 1, failed: 1 })
    expect(body.data.results.find(({ version }: any) => version === other)).toMatchObject({
      status: 'failed',
      errorMessage: expect.stringContaining('team.fields.motto.type is "String" and not "Integer"'),
    })
    expect(await fieldsOf()).toEqual(['name', 'motto'])
    await api.sql(`update "svc_Migration" set status = 'skipped' where version = $1`, [other])
    const unique = { schema: { fields: { motto: { type: 'String', unique: true } } } }
    expect((await api.admin('PATCH', '/schemas/team', unique)).status).toBe(200)
    const refused = await rollback(one!)
    expect([refused.status, refused.body.error.details]).toEqual([
      400,
      expect.stringContaining('team.fields.motto.unique is true, and should not be there'),
    ])
    expect(await fieldsOf()).toEqual(['name', 'motto'])
  })

  it('are shown by a dry run as they will run, each after the ones before it', async () => {
    const { a_motto, b_color, c_motto } = await written({
      a_motto: withFields({ motto: text }),
      b_color: withFields({ color: text }),
      c_motto: withFields({ motto: { type: 'Integer' } }),
    })
    const preview = async () =>
      (await run({ dryRun: true, sql: true })).body.data.results.map(({ version, sql, sqlProblem }: any) => [
        version,
        sql.filter((statement: string) => statement.startsWith('alter table')),
        sqlProblem,
      ])
    const [motto, color, problem] = [
      [a_motto, ['alter table "team" add column "motto" text'], null],
      [b_color, ['alter table "team" add column "color" text'], null],
      [c_motto, [], expect.stringContaining('team.fields.motto.type is "String" and not "Integer"')],
    ]
    expect(await preview()).toEqual([motto, color, problem])
    await run({ version: a_motto })
    expect(await preview()).toEqual([color, problem])
  })
})

describe('a file that replaced whole collections', () => {
  /** What `?migration=` wrote before it wrote differences. */
  const replacing = `async function replaceBy({ db, schemaManager }: MigrationContext, schemas: Schemas): Promise<MigrationResult> {
  await schemaManager.changeDefinitions(db, ({ collections }) => {
    const next = new Map([...collections].map(([name, { definition }]) => [name, definition.schema]))
    for (const [name, schema] of Object.entries(schemas))
      if (schema === null) next.delete(name)
      else next.set(name, schema as never)
    return next
  })
  return { success: true }
}
`
  const asBefore = (file: string) => {
    const path = join(dir.path, file)
    const [constants] = readFileSync(path, 'utf8')
      .replace('object | null>>', 'unknown>>')
      .split('/** Makes what differs')
    writeFileSync(
      path,
      `${constants}export async function up(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, after)
}

/** Brings the definitions back, and of what has gone only the place. */
export async function down(context: MigrationContext): Promise<MigrationResult> {
  return replaceBy(context, before)
}

${replacing}`,
    )
  }

  it.each([
    ['as it was written', (content: string) => content],
    [
      'formatted',
      (content: string) =>
        content
          .replaceAll("'", '"')
          .replaceAll(/(after|before)\)$/gm, '$1);')
          .replaceAll('  ', '    '),
    ],
  ])('keeps what others have added too, %s', async (_, format) => {
    const { a_motto, b_color } = await written({
      a_motto: withFields({ motto: text }),
      b_color: withFields({ color: text }),
    })
    for (const file of scripts()) {
      asBefore(file)
      writeFileSync(join(dir.path, file), format(readFileSync(join(dir.path, file), 'utf8')))
    }
    expect((await run()).body.data.summary).toMatchObject({ completed: 2, failed: 0 })
    expect(await fieldsOf()).toEqual(['name', 'motto', 'color'])
    await fill({ color: 'red' })
    expect((await rollback(a_motto!)).body.data.status).toBe('rolled_back')
    expect(await item()).toMatchObject({ color: 'red' })
    expect((await rollback(b_color!)).body.data.status).toBe('rolled_back')
    expect(await fieldsOf()).toEqual(['name'])
  })

  it('runs as it is written where somebody has changed its code', async () => {
    await written({ a_motto: withFields({ motto: text }), b_color: withFields({ color: text }) })
    for (const file of scripts()) {
      asBefore(file)
      const path = join(dir.path, file)
      writeFileSync(path, readFileSync(path, 'utf8').replace('{ success: true }', "{ success: true, message: 'own' }"))
    }
    expect((await run()).body.data.summary).toMatchObject({ completed: 2, failed: 0 })
    expect(await fieldsOf()).toEqual(['name', 'color'])
  })
})

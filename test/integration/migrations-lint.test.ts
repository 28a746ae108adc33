import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type LintSubject, lintSql } from '../../src/features/data/migrations/lint.ts'
import { createEmptyDatabase } from '../support/postgres.ts'

/** What the linter says about locks and rewrites, held against what PostgreSQL does. */

let client: pg.Client
let types: ReadonlyMap<string, string>

beforeAll(async () => {
  client = new pg.Client({ connectionString: (await createEmptyDatabase()).url })
  await client.connect()
  await client.query(`
    set timezone = 'UTC';
    create table shelf (id int primary key);
    create table book (id int primary key, name varchar(50), note text, price numeric(10, 2), count int not null default 1,
      at timestamptz, address cidr, tags text[]);
    insert into shelf values (1);
    insert into book select n, 'name', 'note', 1.5, 1, now(), '10.0.0.0/8', '{a}' from generate_series(1, 100) n;
    create index book_name on book (name);
    create unique index book_id on book (id)`)
  const { rows } = await client.query<{ name: string; type: string }>(`
    select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute where attrelid = 'book'::regclass and attnum > 0`)
  types = new Map(rows.map(({ name, type }) => [name, type]))
})

afterAll(() => client.end())

const subject: LintSubject = {
  inTransaction: true,
  columnType: (_table, column) => types.get(column),
  isCheckedNotNull: () => false,
  usesOf: () => [],
}

const strength = ['AccessShareLock', 'RowExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'AccessExclusiveLock']
const inSql = ['', 'ROW EXCLUSIVE', 'SHARE', 'SHARE ROW EXCLUSIVE', 'ACCESS EXCLUSIVE']

/** The strongest lock the statement holds on the table, and whether the table's file is another one; undone afterwards. */
async function effectOf(sql: string): Promise<{ lock: string; rewritten: boolean }> {
  const file = async () =>
    (await client.query(`select pg_relation_filenode(oid) as file from pg_class where oid = $1`, [oid])).rows[0]?.file
  const oid = (await client.query(`select 'book'::regclass::oid as oid`)).rows[0].oid
  await client.query('begin')
  try {
    const before = await file()
    await client.query(sql)
    const { rows } = await client.query<{ mode: string }>(
      'select mode from pg_locks where pid = pg_backend_pid() and relation = $1 and granted',
      [oid],
    )
    const strongest = Math.max(0, ...rows.map(({ mode }) => strength.indexOf(mode)))
    return { lock: inSql[strongest]!, rewritten: (await file()) !== before }
  } finally {
    await client.query('rollback')
  }
}

describe('the lock of a finding is the one that is held', () => {
  it.each([
    'create index on book (name)',
    'drop index book_name',
    'alter table book add column x uuid default gen_random_uuid()',
    'alter table book add column x bigserial',
    'alter table book alter count set not null',
    'alter table book alter count type bigint',
    'alter table book add foreign key (count) references shelf (id)',
    'alter table book add check (count > 0)',
    'alter table book add unique (id, name)',
    'alter table book rename name to title',
    'alter table book rename to volume',
    'alter table book drop name',
    'drop table book',
    'truncate book',
    'lock table book',
    'cluster book using book_name',
    'reindex table book',
    'alter table book set unlogged',
    'update book set count = 2',
    'delete from book',
  ])('%s', async (sql) => {
    const [finding] = await lintSql([sql], subject)
    expect((await effectOf(sql)).lock).toBe(finding?.lock)
  })
})

describe('the safe ways hold no more than they say', () => {
  it.each([
    ['alter table book add foreign key (count) references shelf (id) not valid', 'SHARE ROW EXCLUSIVE'],
    ['alter table book add constraint one unique using index book_id', 'ACCESS EXCLUSIVE'],
  ])('%s', async (sql, lock) => {
    expect(await lintSql([sql], subject)).toEqual([])
    expect(await effectOf(sql)).toEqual({ lock, rewritten: false })
  })
})

describe('a new type or column rewrites the table just when the linter says so', () => {
  const casts = ['count', 'name', 'note', 'price', 'at', 'address', 'tags'].flatMap((column) => {
    const targets: Record<string, string[]> = {
      count: ['bigint', 'smallint', 'text', 'numeric'],
      name: ['varchar(80)', 'varchar(20)', 'varchar', 'text', 'char(50)'],
      note: ['varchar', 'varchar(10)', 'text'],
      price: ['numeric(12, 2)', 'numeric(12, 3)', 'numeric', 'numeric(8, 2)', 'double precision'],
      at: ['timestamptz', 'timestamp', 'timestamptz(3)', 'timestamptz(6)', 'date'],
      address: ['inet', 'text'],
      tags: ['varchar[]', 'text[]'],
    }
    return targets[column]!.map((type) => `alter table book alter ${column} type ${type}`)
  })
  it.each([
    ...casts,
    'alter table book add column x int default 5',
    'alter table book add column x timestamptz default now()',
    'alter table book add column x float default random()',
    'alter table book add column x serial',
    'alter table book add column x int generated always as (count + 1) stored',
  ])('%s', async (sql) => {
    const rewrites = ['type-change', 'volatile-default', 'stored-column']
    const said = (await lintSql([sql], subject)).some(({ rule }) => rewrites.includes(rule))
    const { rewritten } = await effectOf(sql)
    // It may warn of a change that only reads or checks the table; it must not miss one that rewrites it.
    if (rewritten) expect(said).toBe(true)
    else expect([sql, said]).toEqual([sql, harmless.has(sql)])
  })
})

/** Warned of although this server writes nothing: its time zone is UTC, which another one's may not be. */
const harmless = new Set(['alter table book alter at type timestamp'])

import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type LintSubject, lintSql, rules } from '../../src/features/data/migrations/lint.ts'

const types: Readonly<Record<string, string>> = {
  name: 'character varying(50)',
  note: 'text',
  price: 'numeric(10,2)',
  count: 'integer',
  at: 'timestamp with time zone',
  tags: 'text[]',
}
const subject = (more: Partial<LintSubject> = {}): LintSubject => ({
  inTransaction: true,
  columnType: (table, column) => (table === 'book' ? types[column] : undefined),
  isCheckedNotNull: (_table, column) => column === 'checked',
  usesOf: (table, column) =>
    column === undefined ? [`collection ${table}`] : [`field ${column} of collection ${table}`],
  ...more,
})
const found = async (sql: string, more?: Partial<LintSubject>) =>
  (await lintSql([sql], subject(more))).map(({ rule, object }) => `${rule} ${object}`.trim())

describe('the linter finds', () => {
  it.each<[string, string[]]>([
    ['create index on book (name)', ['index-not-concurrent book']],
    ['create index concurrently on book (name)', ['concurrent-in-transaction book']],
    ['drop index book_name', ['drop-index book_name']],
    ['alter table book add column x int not null', ['add-required-column book.x']],
    ['alter table book add column x uuid default gen_random_uuid()', ['volatile-default book.x']],
    ['alter table book add column x text default lower(svc_short_id())', ['volatile-default book.x']],
    ['alter table book add column x timestamptz default clock_timestamp()', ['volatile-default book.x']],
    ['alter table book add column x bigserial', ['stored-column book.x']],
    ['alter table book add column x int generated always as (count * 2) stored', ['stored-column book.x']],
    ['alter table book add column x int generated always as identity', ['stored-column book.x']],
    ['alter table book add column x int unique', ['add-unique book']],
    ['alter table book add column x int not null default 0 references shelf (id)', ['add-foreign-key book']],
    ['alter table book alter name set not null', ['set-not-null book.name']],
    ['alter table book alter count type bigint', ['type-change book.count']],
    ['alter table book alter name type varchar(20)', ['type-change book.name']],
    ['alter table book alter note type varchar(20)', ['type-change book.note']],
    ['alter table book alter price type numeric(10, 4)', ['type-change book.price']],
    ['alter table book alter at type timestamp', ['type-change book.at']],
    ['alter table book alter tags type varchar(5)[]', ['type-change book.tags']],
    ['alter table book alter note type text using upper(note)', ['type-change book.note']],
    ['alter table book alter unknown type text', ['type-change book.unknown']],
    ['alter table book add foreign key (count) references shelf (id)', ['add-foreign-key book']],
    ['alter table book add check (count > 0)', ['add-check book']],
    ['alter table book add unique (name)', ['add-unique book']],
    ['alter table book add primary key (count)', ['add-unique book']],
    ['alter table book rename name to title', ['rename-column book.name']],
    ['alter table book rename to volume', ['rename-table book']],
    ['alter table book drop name, drop count', ['drop-column book.name', 'drop-column book.count']],
    ['drop table book, "Shelf"', ['drop-table book', 'drop-table Shelf']],
    ['truncate book', ['truncate book']],
    ['lock table book', ['lock-table book']],
    ['vacuum full book', ['vacuum-full book']],
    ['cluster book using book_name', ['cluster book']],
    ['reindex table book', ['reindex book']],
    ['alter table book set unlogged', ['set-persistence book']],
    ['update book set count = 0', ['whole-table-write book']],
    ['delete from book', ['whole-table-write book']],
    ['selec 1', ['syntax']],
  ])('%s', async (sql, expected) => {
    expect(await found(sql)).toEqual(expected)
  })
})

describe('the linter lets pass', () => {
  it.each([
    'create index concurrently on book (name)',
    'drop index concurrently book_name',
    'drop function if exists f(int), g()',
    'drop type t',
    'drop trigger t on book',
    'drop schema s',
    'drop extension e',
    'drop aggregate a(int)',
    'drop cast (text as int)',
    'drop operator + (int, int)',
    'reindex table concurrently book',
    'vacuum book',
  ])('without a transaction: %s', async (sql) => {
    expect(await found(sql, { inTransaction: false })).toEqual([])
  })

  it.each([
    'alter table book add column x int',
    'alter table book add column x int not null default 0',
    "alter table book add column x timestamptz default now(), add column y text default 'a' || 'b'",
    'alter table book add column x int references shelf (id)',
    'alter table book alter checked set not null',
    'alter table book alter name type varchar(80)',
    'alter table book alter name type text',
    'alter table book alter note type varchar',
    'alter table book alter price type numeric(12, 2)',
    'alter table book alter price type numeric',
    'alter table book add foreign key (count) references shelf (id) not valid',
    'alter table book add constraint positive check (count > 0) not valid',
    'alter table book validate constraint positive',
    'alter table book add constraint one unique using index book_name',
    'create table shelf (id int primary key); create index on shelf (id); alter table shelf add check (id > 0); delete from shelf; drop table shelf',
    'update book set count = 0 where id between 1 and 1000',
    'select 1; insert into book (name) values (1)',
  ])('%s', async (sql) => {
    expect(await found(sql)).toEqual([])
  })
})

describe('a finding', () => {
  it('names its statement, what holds it up and who uses what is dropped', async () => {
    const sql = ["select 'ä'; create table a (x int)", 'select 1;\nalter table book drop column name ;']
    expect(await lintSql(sql, subject())).toEqual([
      {
        rule: 'drop-column',
        object: 'book.name',
        statement: 4,
        sql: 'alter table book drop column name',
        lock: 'ACCESS EXCLUSIVE',
        why: `${rules['drop-column'].why} In use by: field name of collection book.`,
        safeWay: rules['drop-column'].safeWay,
      },
    ])
  })

  it('keeps bytes and characters apart', async () => {
    const [finding] = await lintSql(["select 'äöü€'; drop table book"], subject())
    expect(finding).toMatchObject({ sql: 'drop table book', statement: 2 })
  })
})

describe('docs/migrations.md', () => {
  it('lists every rule with its lock', () => {
    const docs = readFileSync('docs/migrations.md', 'utf8')
    for (const [name, { lock }] of Object.entries(rules)) expect(docs).toContain(`| \`${name}\` | ${lock} |`)
  })
})

import type pg from 'pg'
import { categories, owners, type Twin, twins } from './shape.ts'

/**
 * Fills the tables: every run of the same size has the same rows. The rows of owner 0 belong to `ownerId`. Log triggers
 * are off meanwhile; `ceiling.*` then become copies with the same indexes, without triggers.
 */
export async function seed(sql: pg.Client, ownerId: string, sizes: Readonly<Record<Twin, number>>): Promise<void> {
  await sql.query(`insert into category (id, name, slug)
    select ${idSql}, 'Category ' || n, 'category-' || n from generate_series(1, ${categories}) n`)
  for (const table of twins) await fill(sql, table, ownerId, sizes[table])
  await sql.query('create schema ceiling')
  await sql.query('create table ceiling.category (like public.category including all)')
  await sql.query('insert into ceiling.category select * from public.category')
  for (const table of twins) await copy(sql, table)
  await sql.query('analyze')
}

export const idSql = `('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`

/** Rows after the first `after` ones, without events. */
export async function fill(sql: pg.Client, table: Twin, ownerId: string, rows: number, after = 0): Promise<void> {
  await sql.query(`alter table ${table} disable trigger user`)
  await sql.query(
    `insert into ${table} (id, sku, name, description, price, stock, active, "releasedAt", "owner_Id", "category_Id",
       "createdAt", "updatedAt")
     select ${idSql}, 'SKU-' || n, 'Product number ' || n, repeat('A thing of some use. ', 8),
       ((n::bigint * 7919) % 100000)::numeric / 100, n % 1000, n % 7 <> 0,
       timestamptz '2022-01-01 00:00Z' + make_interval(hours => ((n::bigint * 613) % 35064)::int),
       case (n / ${categories}) % ${owners} when 0 then $1::uuid
         else ('00000000-0000-4000-9000-' || lpad(((n / ${categories}) % ${owners})::text, 12, '0'))::uuid end,
       ('00000000-0000-4000-8000-' || lpad(to_hex(n % ${categories} + 1), 12, '0'))::uuid,
       timestamptz '2026-01-01 00:00Z', timestamptz '2026-01-01 00:00Z'
     from generate_series($3::int + 1, $2::int) n`,
    [ownerId, rows, after],
  )
  await sql.query(`alter table ${table} enable trigger user`)
  await sql.query(`vacuum (analyze, freeze) ${table}`)
}

async function copy(sql: pg.Client, table: Twin): Promise<void> {
  await sql.query(`create table ceiling.${table} (like public.${table} including all)`)
  await sql.query(`insert into ceiling.${table} select * from public.${table} order by id`)
  await sql.query(`alter table ceiling.${table} add foreign key ("category_Id") references ceiling.category (id)`)
  await sql.query(`vacuum (analyze, freeze) ceiling.${table}`)
}

import pg from 'pg'
import type { Api } from './api.ts'

/** A collection whose rows cannot be read: its table is a view that raises `canary` for each of them. */
export async function brokenCollection(api: Api, name: string): Promise<void> {
  const made = await api.admin('POST', '/schemas', {
    collectionName: name,
    schema: { timestamps: false, fields: { name: { type: 'String' } } },
  })
  if (made.status !== 201) throw new Error(`schema refused: ${made.text}`)
  await api.sql(`
    insert into "${name}" (name) values ('x');
    alter table "${name}" rename to "${name}_rows";
    create function ${name}_explode(name text) returns text language plpgsql as
      $$ begin raise exception 'canary % select', name; end $$;
    create view "${name}" as
      select (jsonb_populate_record(r, jsonb_build_object('name', ${name}_explode(name)))).* from "${name}_rows" r`)
}

/** While `work` runs, every reader of the table waits. */
export async function whileLocked(api: Api, table: string, work: () => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: api.database.url })
  await client.connect()
  try {
    await client.query(`begin; lock table "${table}" in access exclusive mode`)
    await work()
  } finally {
    await client.end()
  }
}

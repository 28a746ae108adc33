import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.2.0'
export const name = 'field types'
export const description = 'Range types over times of day, and the default of TOKEN fields.'
export const type = 'upgrade'

/** What fields of types Range_Time, Range_Time_NO_TZ and TOKEN are made of; nothing uses it before. */
export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  for (const statement of statements) await sql(statement)
  return { success: true }
}

const statements = [
  'create type svc_timerange as range (subtype = time)',
  'create type svc_timetzrange as range (subtype = timetz)',
  // 9 characters of the alphabet of svc_short_id, about 44 bits. Bytes 6 and 8 of a UUID are no chance, so they are left out.
  `create function svc_token() returns text language sql volatile as $$
     select string_agg(substr('23456789abcdefghjkmnpqrstuvwxyz', 1 + get_byte(bytes, i) % 31, 1), '')
     from (select decode(replace(gen_random_uuid()::text, '-', ''), 'hex') as bytes) s,
          unnest(array[0, 1, 2, 3, 4, 5, 7, 9, 10]) i
   $$`,
]

import { sql, type Tx } from '../../db/sql.ts'
import { defaultTemplate, seededTypes } from './types.ts'

/*
 * The rows of svc_Template that every installation starts with (spec/schemas.md §4). Their ids are known, so that one
 * that nobody has changed can follow the built-in text, and one that somebody has deleted stays deleted.
 */

const seeds = seededTypes.map((type, n) => {
  const { subject, body, description } = defaultTemplate(type)!
  return { id: `7e3b1a70-0000-4000-8000-${String(n + 1).padStart(12, '0')}`, type, subject, body, description }
})

/** Once, by the migration that makes the table: a row of every type that has no global one. */
export const insertSeedsSql = `insert into "svc_Template" (id, type, subject, body, description)
  select * from jsonb_to_recordset($1::jsonb) as s (id uuid, type text, subject text, body text, description text)
  on conflict do nothing`

export const seedsJson = (): string => JSON.stringify(seeds)

/** With every setup: a seeded row that was never changed since becomes what is built in now. */
export async function renewSeededTemplates(tx: Tx): Promise<void> {
  await tx.any(sql.unsafe`
    update "svc_Template" t set subject = s.subject, body = s.body, description = s.description
    from jsonb_to_recordset(${seedsJson()}::jsonb) as s (id uuid, subject text, body text, description text)
    where t.id = s.id and t."updatedAt" = t."createdAt"
      and (t.subject, t.body, t.description) is distinct from (s.subject, s.body, s.description)`)
}

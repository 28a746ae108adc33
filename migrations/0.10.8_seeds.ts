import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.10.8'
export const name = 'seeds'
export const description = 'Setup knows which of its values nobody has changed, and brings those up to date.'
export const type = 'upgrade'

const seeds = `create table "svc_Seed" (key text primary key, value text not null)`

/** Until now everybody who named no project got this name. */
const nameByDefault = `insert into "svc_Seed" (key, value)
  select 'project_name', project_name from "svc_Settings" where "tenant_Id" is null and project_name = 'Daybook'`

export async function up({ sql }: MigrationContext): Promise<MigrationResult> {
  await sql(seeds)
  await sql(nameByDefault)
  return { success: true }
}

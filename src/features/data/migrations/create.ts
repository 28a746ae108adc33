import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join, relative, resolve, sep } from 'node:path'
import type { Config } from '../../../config/config.ts'
import { errors } from '../../../errors.ts'
import type { MigrationType } from '../../../events/direct-session.ts'

type NewMigration = {
  readonly name: string
  readonly type?: MigrationType | undefined
  readonly description?: string | undefined
}

/**
 * Writes a new script into MIGRATIONS_DIR, its version the time in UTC and the name: `20241224103000_add_column`. No text
 * of the caller becomes anything but the content of a string, or a file name of `[a-z0-9_]`.
 *
 * @returns its path from the working directory
 * @throws AppError 400 for a name that is no name, 409 when the file exists
 */
export function createMigration(config: Config, migration: NewMigration, now: Date): string {
  const version = `${timestampOf(now)}_${slugOf(migration.name)}`
  const dir = resolve(config.migrations.dir)
  const path = join(dir, `${version}.ts`)
  mkdirSync(dir, { recursive: true })
  try {
    writeFileSync(path, scriptText(version, migration, dir), { flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST' && existsSync(path))
      throw errors.conflict(`Migration ${version} exists already`)
    throw error
  }
  return relative(process.cwd(), path)
}

const longestName = 80

/** Words become `a_b_c`; whatever else a name might hold has no place in a file name and is refused. */
function slugOf(name: string): string {
  if (name.length <= longestName && /^[A-Za-z0-9]+([ _-]+[A-Za-z0-9]+)*$/.test(name))
    return name.toLowerCase().replaceAll(/[ _-]+/g, '_')
  throw errors.badBody(`name must be 1 to ${longestName} letters, digits, blanks, - and _, e.g. add_country_code`)
}

/** `20241224103000` */
function timestampOf(now: Date): string {
  return now.toISOString().replaceAll(/\D/g, '').slice(0, 14)
}

function scriptText(version: string, { name, type = 'upgrade', description }: NewMigration, dir: string): string {
  const types = relative(dir, resolve(import.meta.dirname, '../../../events/direct-session.ts'))
    .split(sep)
    .join('/')
  const about = description === undefined ? [] : [`export const description = ${literal(description)}`]
  return [
    `import type { MigrationContext, MigrationResult } from ${literal(types.startsWith('.') ? types : `./${types}`)}`,
    '',
    `export const version = ${literal(version)}`,
    `export const name = ${literal(name)}`,
    ...about,
    `export const type = ${literal(type)}`,
    '',
    body,
  ].join('\n')
}

const body = `/** Runs in one transaction with its record, unless the script says \`export const transaction = false\`. */
export async function up({ log }: MigrationContext): Promise<MigrationResult> {
  log('nothing to do yet')
  // await sql('alter table "note" add column "rank" integer')
  return { success: true }
}

/** Undoes what \`up\` has done. Leave it out where there is no way back. */
export async function down({ log }: MigrationContext): Promise<MigrationResult> {
  log('nothing to undo yet')
  return { success: true }
}
`

/** A string constant as the formatter writes it: in single quotes, unless double ones need fewer escapes. */
function literal(text: string): string {
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
  const plain = escaped.replaceAll('\\"', '"')
  const [single, double] = [plain.split("'").length, plain.split('"').length]
  return single > double ? `"${escaped}"` : `'${plain.replaceAll("'", "\\'")}'`
}

import { existsSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import type { Config } from '../../../config/config.ts'
import { errors } from '../../../errors.ts'
import type { MigrationType } from '../../../events/direct-session.ts'
import { makeDirectorySync } from '../../../language/directories.ts'

type NewMigration = {
  readonly name: string
  readonly type?: MigrationType | undefined
  readonly description?: string | undefined
  /** The schemas of collections as they are and as they are to be; null where one is not there. */
  readonly definitions?: { readonly before: Schemas; readonly after: Schemas } | undefined
}

type Schemas = Readonly<Record<string, object | null>>

/**
 * A new script, its version the time in UTC and the name: `20241224103000_add_column`. No text of the caller becomes
 * anything but the content of a string, or a file name of `[a-z0-9_]`.
 *
 * @throws AppError 400 for a name that is no name
 */
export function migrationScript(migration: NewMigration, now: Date): NewScript {
  const version = `${timestampOf(now)}_${slugOf(migration.name)}`
  return { version, file: `${version}.ts`, text: scriptText(version, migration) }
}

type NewScript = { readonly version: string; readonly file: string; readonly text: string }

/**
 * Writes a new script into MIGRATIONS_DIR.
 *
 * @returns its path from the working directory
 * @throws AppError 400 for a name that is no name, 409 when the file exists
 */
export function createMigration(config: Config, migration: NewMigration, now: Date): string {
  const { version, file, text } = migrationScript(migration, now)
  const dir = resolve(config.migrations.dir)
  const path = join(dir, file)
  makeDirectorySync(dir)
  try {
    writeFileSync(path, text, { flag: 'wx' })
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

function scriptText(version: string, { name, type = 'upgrade', description, definitions }: NewMigration): string {
  const about = description === undefined ? [] : [`export const description = ${literal(description)}`]
  return [
    "import type { MigrationContext, MigrationResult } from 'daybook/migrations'",
    '',
    `export const version = ${literal(version)}`,
    `export const name = ${literal(name)}`,
    ...about,
    `export const type = ${literal(type)}`,
    '',
    definitions === undefined ? body : bodyFor(definitions),
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

/** Makes the difference between two versions of definitions, both ways. */
function bodyFor({ before, after }: { readonly before: Schemas; readonly after: Schemas }): string {
  return `type Schemas = Readonly<Record<string, object | null>>

/** The collections as they were when this was written; null for one that was not there. */
const before: Schemas = ${constant(before)}

/** The same as they are to be. A field that is only in the other one goes with its values. */
const after: Schemas = ${constant(after)}

/** Makes what differs between the two. What others have changed meanwhile stays; where it is the same member, this fails. */
export async function up({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  await schemaManager.changeByDifference(db, { before, after })
  return { success: true }
}

/** Makes the difference undone in the same way, and brings back of what has gone only the place. */
export async function down({ db, schemaManager }: MigrationContext): Promise<MigrationResult> {
  await schemaManager.changeByDifference(db, { before: after, after: before })
  return { success: true }
}
`
}

/** JSON as a constant of a program: there a member of this name would not be one. */
const constant = (value: unknown): string =>
  JSON.stringify(value, null, 2).replaceAll(/(?<!\\)"__proto__":/g, '["__proto__"]:')

/** A string constant as the formatter writes it: in single quotes, unless double ones need fewer escapes. */
function literal(text: string): string {
  const escaped = JSON.stringify(text).slice(1, -1).replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
  const plain = escaped.replaceAll('\\"', '"')
  const [single, double] = [plain.split("'").length, plain.split('"').length]
  return single > double ? `"${escaped}"` : `'${plain.replaceAll("'", "\\'")}'`
}

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll } from 'vitest'

export type MigrationsDir = {
  readonly path: string
  /** Writes a script of this version whose functions have these bodies; `head` goes before them. */
  write(version: string, up: string, more?: { down?: string; head?: string; file?: string }): string
}

const dirs: string[] = []

afterAll(() => {
  for (const dir of dirs) rmSync(dir, { recursive: true })
})

/** An empty directory for migration scripts, removed after the test file. */
export function migrationsDir(): MigrationsDir {
  const path = mkdtempSync(join(tmpdir(), 'daybook-migrations-'))
  dirs.push(path)
  writeFileSync(join(path, 'package.json'), '{"type":"module"}')
  return {
    path,
    write: (version, up, { down, head = '', file = `${version}.ts` } = {}) => {
      const functions = [`export async function up({ db, sql, schemaManager, env, log }) { ${up} }`]
      if (down !== undefined) functions.push(`export async function down({ db, sql, log }) { ${down} }`)
      const exported = [
        `export const version = '${version}'`,
        `export const name = 'step ${version}'`,
        head,
        ...functions,
      ]
      writeFileSync(join(path, file), exported.join('\n'))
      return file
    },
  }
}

/** A step that notes that it has run. */
export const noting = (what: string) =>
  `await sql('create table if not exists ran (what text)'); await sql('insert into ran values ($1)', ['${what}']); return { success: true }`

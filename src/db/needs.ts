import { ConfigError } from '../config/config.ts'
import { quoteName, type Reader, sql } from './sql.ts'

/** What setup needs of a database and of its role, before it creates anything. */
type SetupFacts = {
  readonly role: string
  readonly database: string
  readonly encoding: string
  /** Whether the role may create tables in the schema `public`; also true where there is no such schema. */
  readonly mayCreateTables: boolean
  readonly mayCreateSchemas: boolean
  /** Whether the schema `public` belongs to whoever owns the database, as since PostgreSQL 15. */
  readonly publicFollows: boolean
}

/** A thing that a database or its role lacks, and the statement that fixes it. */
type Lack = { readonly says: string; readonly remedy: string }

export function readSetupFacts(db: Reader): Promise<SetupFacts> {
  return db.one<SetupFacts>(sql`
    select current_user as role, current_database() as database, current_setting('server_encoding') as encoding,
      coalesce(has_schema_privilege(to_regnamespace('public')::oid, 'CREATE'), true) as "mayCreateTables",
      has_database_privilege(current_database(), 'CREATE') as "mayCreateSchemas",
      coalesce((select pg_get_userbyid(nspowner) = 'pg_database_owner' from pg_namespace where nspname = 'public'), true) as "publicFollows"`)
}

/** Throws a ConfigError that names the remedy where no installation is in the database. */
export async function requireSetUp(db: Reader): Promise<void> {
  const { done } = await db.one<{ done: boolean }>(
    sql`select to_regclass('"svc_SchemaDefinition"') is not null as done`,
  )
  if (!done) throw notSetUp()
}

export const notSetUp = (): ConfigError =>
  new ConfigError('DATABASE_URL: this database has not been set up yet: run npx daybook setup')

/** Why no installation can be made in an empty database, and what to do about it; undefined where it can. */
export function unfitness(facts: SetupFacts): string | undefined {
  const lacks = [encodingLack(facts), rightsLack(facts)].filter((lack) => lack !== undefined)
  return lacks.length === 0 ? undefined : lacks.map(({ says, remedy }) => `${says}: ${remedy}`).join('\n')
}

/** Text in another encoding than UTF8 refuses the letters that it does not have; it cannot be changed later. */
export function encodingLack({
  role,
  database,
  encoding,
}: Pick<SetupFacts, 'role' | 'database' | 'encoding'>): Lack | undefined {
  if (encoding === 'UTF8') return undefined
  const better = quoteName(`${database}_utf8`)
  return {
    says: `the database's encoding is ${encoding}`,
    remedy: `name another one in DATABASE_URL, which a superuser makes by: create database ${better} owner ${quoteName(role)} encoding 'UTF8' locale 'C.UTF-8' template template0`,
  }
}

/** Whether the role may create what setup creates; it may where it owns the database. */
export function rightsLack(facts: SetupFacts): Lack | undefined {
  const { role, database, mayCreateTables, mayCreateSchemas, publicFollows } = facts
  if (mayCreateTables && mayCreateSchemas) return undefined
  const missing = [
    ...(mayCreateTables ? [] : ['the schema public']),
    ...(mayCreateSchemas ? [] : [`the database ${database}`]),
  ]
  const follow = mayCreateTables || publicFollows ? '' : '; alter schema public owner to pg_database_owner'
  return {
    says: `the role ${role} lacks CREATE on ${missing.join(' and ')}`,
    remedy: `let it own the database, as a superuser connected to it: alter database ${quoteName(database)} owner to ${quoteName(role)}${follow}`,
  }
}

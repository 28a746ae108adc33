import pg from 'pg'
import pino from 'pino'
import type { Catalog, Collection, Field, Kind } from '../../src/catalog/catalog.ts'
import { logTriggersSql } from '../../src/catalog/log-triggers.ts'
import { logDoors } from '../../src/events/log.ts'
import { consumerTablesSql, logTableSql, publicationSql } from '../../src/events/log-table.ts'
import { createEmptyDatabase } from './postgres.ts'

export const silent = pino({ level: 'silent' })

/** A database with nothing but the log and its publication. */
export async function createLogDatabase(): Promise<string> {
  const { url } = await createEmptyDatabase()
  const client = await connect(url)
  await run(client, [...logTableSql(), ...consumerTablesSql(), ...publicationSql()])
  await client.end()
  return url
}

export async function connect(url: string, options: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, ...options })
  await client.connect()
  return client
}

export async function run(client: pg.Client, statements: readonly string[]): Promise<void> {
  for (const statement of statements) await client.query(statement)
}

/** Creates a table from `create table` columns and puts the log triggers of `fields` on it. */
export async function createLogged(client: pg.Client, collection: Collection, columns: string): Promise<void> {
  await client.query(`create table "${collection.name}" (${columns})`)
  await run(client, logTriggersSql(collection))
}

export type FieldSpec = Partial<Field> & { kind: Kind }

/** A literal collection; its primary key is the first field. */
export function collectionOf(name: string, specs: Record<string, FieldSpec>, logged = true): Collection {
  const fields = Object.entries(specs).map(([field, spec], i) => fieldOf(field, spec, i === 0))
  return {
    name,
    system: false,
    primaryKey: fields[0]!,
    fields: new Map(fields.map((field) => [field.name, field])),
    relations: new Map(),
    indexes: [],
    timestamps: false,
    paranoid: false,
    usertrack: false,
    sortEnabled: false,
    logged,
    realtime: { enabled: true, actions: new Set(['insert', 'update', 'delete']) },
    cache: { wanted: undefined, ttlSeconds: undefined },
    writable: true,
    definition: { collectionName: name, schema: { fields: {} } },
  }
}

export function catalogOf(...collections: Collection[]): Catalog {
  return { version: 'test', collections: new Map(collections.map((collection) => [collection.name, collection])) }
}

export type Logged = {
  position: string
  entity: string
  entityId: string
  action: string
  changes: { before?: Record<string, unknown>; after?: Record<string, unknown> }
  userId: string | null
  tenant_Id: string | null
}

/** The events of an entity (default: all), by position. */
export async function logged(client: pg.Client, entity?: string): Promise<Logged[]> {
  const { rows } = await client.query(
    'select * from "svc_AuditLog" where entity = coalesce($1, entity) order by position',
    [entity ?? null],
  )
  return rows
}

/** The same as `action entityId`, the shortest way to say what happened. */
export async function story(client: pg.Client, entity?: string): Promise<string[]> {
  return (await logged(client, entity)).map((event) => `${event.action} ${event.entityId}`)
}

/** Forgets what has been logged so far, as retention would but for its floor. */
export async function clearLog(client: pg.Client): Promise<void> {
  await client.query(`${logDoors.retention} truncate "svc_AuditLog"`)
}

/** The embedded server's superuser has the password of the application's role. */
export function asSuperuser(address: string): string {
  const parsed = new URL(address)
  parsed.username = 'postgres'
  return parsed.href
}

function fieldOf(name: string, spec: FieldSpec, primaryKey: boolean): Field {
  return {
    name,
    type: spec.kind,
    pgType: 'text',
    element: undefined,
    nullable: true,
    primaryKey,
    unique: false,
    default: undefined,
    generated: undefined,
    enumValues: undefined,
    hidden: false,
    unlogged: false,
    validate: undefined,
    systemGenerated: false,
    ...spec,
  }
}

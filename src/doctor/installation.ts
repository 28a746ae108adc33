import { access, constants } from 'node:fs/promises'
import { dirname } from 'node:path'
import { readRules } from '../access/store.ts'
import { logKeys } from '../adapters/log-key.ts'
import { compileCatalog } from '../catalog/compile.ts'
import { switchOf } from '../catalog/fields.ts'
import { logSchema, logTable } from '../catalog/log-triggers.ts'
import { readDefinitions } from '../catalog/store.ts'
import { lackInWords, tableLacks } from '../catalog/tables.ts'
import type { Config } from '../config/config.ts'
import { readSetupFacts, rightsLack } from '../db/needs.ts'
import { quoteName, type Reader, rawQuery, sql } from '../db/sql.ts'
import { bossSchema, deadLetterQueues, queues } from '../events/jobs.ts'
import { publicationName } from '../events/log.ts'
import { headsAfter, sealLag } from '../events/seals/seals.ts'
import { type Review, reviewPermissions } from '../features/accounts/permissions/permissions.ts'
import { failedMigrations, pendingSystemMigrations } from '../features/data/migrations/migrations.ts'
import { type RefusedSql, refusedObjects, refusedTexts } from '../features/data/schemas/schemas.ts'
import { envOf } from '../query/resolve.ts'
import { lastHeadOf } from '../workers/head-file.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

const runSetup = 'run npx daybook setup'

/** Whether setup has been here; without it nothing of the installation can be looked at. */
export async function isSetUp(db: Reader): Promise<boolean> {
  // Not by name: a role that may not look into the schema would get an error instead of an answer.
  const { done } = await db.one<{ done: boolean }>(sql`
    select to_regclass('"svc_SchemaDefinition"') is not null and exists (
      select from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = ${logSchema} and c.relname = 'floor') as done`)
  return done
}

/** Whether setup, which is to come, could do its work. */
export async function checkEmpty(db: Reader): Promise<Finding> {
  const says = 'the database is empty or another program’s'
  const lack = rightsLack(await readSetupFacts(db))
  if (lack === undefined) return problem('setup', says, runSetup)
  return problem('setup', `${says}, and ${lack.says}`, `${lack.remedy}; then ${runSetup}`)
}

export async function checkMigrations(db: Reader): Promise<Finding[]> {
  const pending = await pendingSystemMigrations(db)
  const setup =
    pending.length === 0
      ? ok('setup', 'done, no system migration is pending')
      : problem('setup', `system migrations are pending: ${pending.join(', ')}`, runSetup)
  const [failed] = await failedMigrations(db)
  if (failed === undefined) return [setup]
  const { version, errorMessage } = failed
  const reason = errorMessage === null ? '' : `: ${oneLine(errorMessage)}`
  return [
    setup,
    problem(
      'migrations',
      `${version} has failed, and later ones wait${reason}`,
      `mend its cause, then npx daybook migrate retry ${version}; or mark-completed where its changes are there (docs/migrations.md#failed-migrations)`,
    ),
  ]
}

/** Something of an installation that belongs to a role whose rights ours does not have. */
export type Foreign = {
  readonly kind: 'schema' | 'publication' | 'table' | 'function' | 'type'
  readonly name: string
  readonly owner: string
  readonly superuser: boolean
}

/** Setup, schema changes and the cleanup need a role that owns what setup has made. */
export async function checkOwner(db: Reader): Promise<Finding[]> {
  const { role } = await db.one<{ role: string }>(sql`select current_user as role`)
  return judgeOwners(role, await db.any<Foreign>(rawQuery(foreignSql, [[logSchema, bossSchema], publicationName])))
}

/** What belongs to an extension is its affair, and so is what others have in the schema `public`. */
const foreignSql = `with own as (select oid from pg_namespace where nspname = any($1)),
  -- Tables of which the log is told.
  logged as (select t.tgrelid as oid from pg_trigger t join pg_proc p on p.oid = t.tgfoid where p.pronamespace in (select oid from own)),
  found as (
    select 'schema' as kind, nspname as name, nspowner as owner, oid, 'pg_namespace'::regclass as catalog
      from pg_namespace where nspname = any($1)
    union all select 'publication', pubname, pubowner, oid, 'pg_publication'::regclass from pg_publication where pubname = $2
    union all select 'table', relname, relowner, oid, 'pg_class'::regclass from pg_class
      where relkind in ('r', 'p', 'v', 'm', 'f', 'S') and (relnamespace in (select oid from own)
        or relnamespace = to_regnamespace('public') and (relname like 'svc\\_%' or oid in (select oid from logged)))
    union all select 'function', proname, proowner, oid, 'pg_proc'::regclass from pg_proc where pronamespace in (select oid from own)
    union all select 'type', typname, typowner, oid, 'pg_type'::regclass from pg_type
      where typtype in ('e', 'd', 'r') and (typnamespace in (select oid from own)
        or typnamespace = to_regnamespace('public') and typname like 'svc\\_%'))
  select f.kind, f.name, r.rolname as owner, r.rolsuper as superuser from found f join pg_roles r on r.oid = f.owner
  where not pg_has_role(f.owner, 'USAGE')
    and not exists (select from pg_depend e where e.classid = f.catalog and e.objid = f.oid and e.deptype = 'e')
  order by array_position(array['schema', 'publication', 'table', 'function', 'type'], f.kind), f.name`

/** One finding for each other owner. A publication works whoever owns it; only setup could not bring it up to date. */
function judgeOwners(role: string, foreign: readonly Foreign[]): Finding[] {
  if (foreign.length === 0) return [ok('role', `${role} owns the schemas, the tables and the publication`)]
  return [...Map.groupBy(foreign, ({ owner }) => owner)].map(([owner, things]) => {
    const says = `${listed(things)} ${things.length === 1 ? 'belongs' : 'belong'} to ${owner}, not to ${role}`
    if (things.every(({ kind }) => kind === 'publication'))
      return warning('role', says, `as a superuser: alter publication ${publicationName} owner to ${quoteName(role)}`)
    const take = `as a superuser, run the statements of docs/operating.md#the-database-role`
    const share = `connect as ${quoteName(owner)}, or: grant ${quoteName(owner)} to ${quoteName(role)}`
    return problem('role', says, things[0]!.superuser ? take : share)
  })
}

/** Schemas and the publication by their names, the others counted. */
function listed(things: readonly Foreign[]): string {
  const parts = [...Map.groupBy(things, ({ kind }) => kind)].flatMap(([kind, all]) =>
    kind === 'schema' || kind === 'publication' ? all.map(({ name }) => `${kind} ${name}`) : [`${all.length} ${kind}s`],
  )
  return parts.join(', ')
}

/** Whether those who register get a role. */
export async function checkRegistration(db: Reader, { auth }: Config): Promise<Finding[]> {
  const name = auth.defaultRoleRegistered
  if (!auth.publicRegistration) return []
  const { exists } = await db.one<{ exists: boolean }>(
    sql`select exists (select from "svc_Role" where name = ${name}) as exists`,
  )
  if (exists) return [ok('registration', `gives the role ${name}`)]
  return [
    problem(
      'registration',
      `there is no role "${name}", so nobody can register`,
      'create the role, or correct DEFAULT_ROLE_REGISTERED',
    ),
  ]
}

/** The extensions that are switched on. */
export async function checkExtensions(db: Reader, { database }: Config): Promise<Finding[]> {
  const wanted = [
    ...(database.postgis ? (['postgis'] as const) : []),
    ...(database.vector ? (['vector'] as const) : []),
  ]
  const found = await db.any<{ name: string; installed: boolean }>(
    sql`select name, installed_version is not null as installed from pg_available_extensions`,
  )
  return wanted.map((name) => {
    const extension = found.find((one) => one.name === name)
    if (extension?.installed) return ok('extension', `${name} is there`)
    if (extension !== undefined) return problem('extension', `${name} is not created yet`, runSetup)
    return problem(
      'extension',
      `${switchOf[name]} is true, but the server has no ${name}`,
      `install the extension ${name} on the server, then ${runSetup}`,
    )
  })
}

export async function checkPublication(db: Reader, wanted: boolean): Promise<Finding[]> {
  const found = await db.maybeOne(sql`select pubname from pg_publication_tables
    where pubname = ${publicationName} and tablename = ${logTable}`)
  if (found !== undefined || !wanted) return []
  return [
    warning(
      'realtime by WAL',
      `there is no publication ${publicationName} of the log: realtime polls it instead`,
      `${runSetup} as a role that may create publications`,
    ),
  ]
}

/** Every queue that this version uses exists. */
export async function checkQueues(db: Reader): Promise<Finding> {
  const names = [...Object.keys(queues), ...deadLetterQueues]
  const { exists } = await db.one<{ exists: boolean }>(
    sql`select to_regclass(${`${bossSchema}.queue`}) is not null as exists`,
  )
  const rows = exists ? await db.any<{ name: string }>(rawQuery(`select name from ${bossSchema}.queue`)) : []
  const missing = names.filter((name) => !rows.some((row) => row.name === name))
  if (missing.length === 0) return ok('queues', `all ${names.length} are there`)
  return problem('queues', `missing: ${missing.join(', ')}`, runSetup)
}

const monthsWanted = 1

/** Partitions for the months to come; without, their events go into the default partition and are moved later. */
export async function checkPartitions(db: Reader): Promise<Finding> {
  const { ahead, current } = await db.one<{ ahead: number; current: boolean }>(sql`
    select count(*) filter (where month > this)::int as ahead, coalesce(bool_or(month = this), false) as current
    from (select right(c.relname, 6) as month, to_char(now() at time zone 'UTC', 'YYYYMM') as this
      from pg_inherits join pg_class c on c.oid = inhrelid
      where inhparent = ${quoteName(logTable)}::regclass and c.relname ~ '_[0-9]{6}$') partitions`)
  if (current && ahead >= monthsWanted) return ok('log partitions', `made for ${ahead} months ahead`)
  return warning(
    'log partitions',
    current ? 'there is none for the next month' : 'there is none for this month',
    'run npx daybook worker log-cleanup, which makes them every night',
  )
}

/** A minute: sealing lags by ten seconds at most while its worker runs. */
const unsealedSeconds = 60

/** Whether the log is sealed, with our key, and keeps up. */
export async function checkSeals(db: Reader, config: Config): Promise<Finding> {
  const check = 'log seals'
  const { number, key, seconds, sweeping } = await sealLag(db)
  if (!config.log.seals) return ok(check, 'LOG_SEALS is false: tampering with the log does not show')
  const startWorker = 'run npx daybook worker log-cleanup'
  if (number === 0) return warning(check, 'nothing is sealed yet', startWorker)
  if (seconds > unsealedSeconds)
    return warning(check, `the oldest event without a seal is ${Math.round(seconds)} s old`, startWorker)
  const keys = logKeys(config).keys ?? []
  if (keys.length > 0 && !keys.some(({ id }) => id === key))
    return warning(
      check,
      `the newest seal is signed by key ${key}, which is not derived from the secrets here`,
      'set SECRET_KEY_PREVIOUS to the key before, then start the worker log-cleanup; or name the public key to log verify',
    )
  return ok(check, `${number} links${sweeping ? '; events that were passed over are being sealed' : ''}`)
}

/** Whether LOG_SEAL_FILE, as this process sees it, can be appended to and has the heads of the chain. */
export async function checkSealFile(db: Reader, { log }: Config, now: number): Promise<Finding[]> {
  const { seals, sealFile } = log
  if (!seals || sealFile === undefined) return []
  const check = 'log seals'
  const what = `LOG_SEAL_FILE: ${sealFile}`
  try {
    await access(sealFile, constants.R_OK | constants.W_OK).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
      // The worker makes the file, and no directory.
      await access(dirname(sealFile), constants.W_OK)
    })
  } catch (error) {
    return [
      warning(
        check,
        `${what} cannot be appended to: ${reasonOf(error)}`,
        'make its directory, or mount it again, and let the user of the worker log-cleanup write to it; heads that it lacks follow',
      ),
    ]
  }
  const [missing] = await headsAfter(db, await lastHeadOf(sealFile))
  if (missing === undefined || now - Date.parse(missing.at) < unsealedSeconds * 1000)
    return [ok(check, `${what} is up to date`)]
  return [
    warning(
      check,
      `${what} lacks heads from link ${missing.number} of ${missing.at} on`,
      'run npx daybook worker log-cleanup, which appends them',
    ),
  ]
}

const lateDays = 2

/** How much the log holds, and whether retention keeps up. */
export async function checkRetention(db: Reader, { log }: Config): Promise<Finding> {
  const { days, size } = await db.one<{ days: number | null; size: string }>(sql`
    select (extract(epoch from now() - (select min("createdAt") from "svc_AuditLog")) / 86400)::float8 as days,
      pg_size_pretty((select sum(pg_total_relation_size(relid)) from pg_partition_tree(${quoteName(logTable)}::regclass))) as size`)
  const reach = `${size}, ${Math.floor(days ?? 0)} days`
  if (!log.auditCleanupEnabled)
    return ok('log retention', `${reach}; AUDIT_LOG_CLEANUP_ENABLED is false, it keeps everything`)
  if ((days ?? 0) <= log.auditRetentionDays + lateDays)
    return ok('log retention', `${reach} of ${log.auditRetentionDays}`)
  return warning(
    'log retention',
    `${reach}, but only ${log.auditRetentionDays} are wanted`,
    'run npx daybook worker log-cleanup; what keeps it from its work is at GET /ops/jobs?queue=audit-log-cleanup',
  )
}

/** Tables that SQL from outside has changed: every request about them fails. */
export async function checkTables(db: Reader, { tenancy }: Config): Promise<Finding[]> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: tenancy.enabled })
  const lacks = await tableLacks(db, catalog)
  if (lacks.length === 0) return [ok('tables', `${catalog.collections.size} collections have their tables and columns`)]
  return lacks.map((lack) =>
    problem(
      'tables',
      `${lack.collection} differs from its definition: ${lackInWords(lack)}`,
      'bring the table back to its definition by SQL, or delete the definition by DELETE /schemas/{collection}',
    ),
  )
}

const check = 'definitions'

/** SQL that definitions hold from before it was checked: it goes on running, with the rights of the database role. */
export async function checkDefinitions(db: Reader, { tenancy }: Config): Promise<Finding[]> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: tenancy.enabled })
  const collections = [...catalog.collections.values()]
  const texts: RefusedSql[] = []
  for (const collection of collections) texts.push(...(await refusedTexts(collection)))
  const places = new Set(texts.map(placeOf))
  const objects = (await refusedObjects(db, collections)).filter((refused) => !places.has(placeOf(refused)))
  const refused = [...texts, ...objects]
  if (refused.length === 0) return [ok(check, `the SQL of ${collections.length} collections is harmless`)]
  return refused.map((one) =>
    warning(
      check,
      `${placeOf(one)} ${one.reason}: it still runs, but the collection cannot be changed`,
      `change it by PATCH /schemas/${one.collection} (docs/schema-language.md#sql)`,
    ),
  )
}

const placeOf = ({ collection, part }: RefusedSql): string => `${collection}: ${part}`

/** The stored permissions against the collections as they are. */
export async function checkPermissions(db: Reader, config: Config, now: Date): Promise<Finding[]> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: config.tenancy.enabled })
  return judgePermissions(reviewPermissions(await readRules(db, catalog, 0), envOf(config, now)))
}

/**
 * A warning for each permission that waits for its collection, that does not fit it, or that shows a collection through a
 * relation for which the role has no such permission of its own.
 */
function judgePermissions(reviews: readonly Review[]): Finding[] {
  const found = reviews.flatMap((review) => [...waits(review), ...misfits(review), ...opens(review)])
  return found.length > 0 ? found : [ok('permissions', 'every stored permission fits its collection')]
}

function waits({ row, role, waits: isWaiting }: Review): Finding[] {
  if (!isWaiting) return []
  const says = `${ofRole(role)} may ${row.action} ${row.collection}, which does not exist: it grants nothing`
  return [warning('permissions', says, 'create the collection, or delete the permission')]
}

function misfits({ row, role, problems }: Review): Finding[] {
  return problems.map(({ field, message }) =>
    warning(
      'permissions',
      oneLine(`${ofRole(role)}, ${row.action} ${row.collection}: ${field}: ${message}; that part lets nothing through`),
      `correct the permission ${row.id}`,
    ),
  )
}

function opens({ row, role, opened }: Review): Finding[] {
  return opened.map(({ relation, collection, fields }) =>
    warning(
      'permissions',
      oneLine(`${ofRole(role)} reads ${fields.join(', ')} of ${collection} through ${row.collection}.${relation}`),
      `name only what may be seen in the fields of the permission ${row.id}, or give the role a permission to read ${collection} with conditions`,
    ),
  )
}

const ofRole = ({ name }: Review['role']): string => `role ${oneLine(name)}`

const oneLine = (text: string): string => text.replace(/[\p{C}\s]+/gu, ' ').slice(0, 300)

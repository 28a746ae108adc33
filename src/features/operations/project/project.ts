import type { Dirent } from 'node:fs'
import { readdir, readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { IdSource } from '../../../adapters/ids.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { systemActor } from '../../../events/types.ts'
import { makeDirectory } from '../../../language/directories.ts'
import { writeNewFile } from '../../../language/new-file.ts'
import { systemAccess } from '../../../query/access.ts'
import { type ItemWrites, inTransaction, type Requester } from '../../data/items/items.ts'
import { beginDdl, MoveRefused, moveSchemas } from '../../data/schemas/schemas.ts'
import { applySteps } from './apply.ts'
import { type FileTexts, filesOf, isOwnFile, manifest, nameOf, type ProjectFiles, readProject } from './files.ts'
import { contentOf, readInstallation } from './installation.ts'
import { type ProjectPlan, plan, type Step } from './plan.ts'

/** The definition of a product as files, which move it from one installation to the next. */

export type ExportReport = {
  readonly written: readonly string[]
  readonly removed: readonly string[]
  readonly files: number
}

/**
 * Writes the definition of the installation into a directory that is new, empty or a project; files of parts that are gone go
 * too. 409 for a directory of something else.
 */
export async function exportProject(deps: Reads & CurrentCatalog, dir: string): Promise<ExportReport> {
  const files = filesOf(contentOf(await readInstallation(deps.db, await deps.catalog.reloadIfStale())))
  const paths = await pathsIn(dir)
  if (paths.length > 0 && !paths.includes(manifest))
    throw new AppError(409, `${dir}: it has files and is no project: it lacks ${manifest}`)
  const before = await readTexts(dir, paths.filter(isOwnFile))
  const written = [...files].filter(([path, text]) => before.get(path) !== text)
  for (const [path, text] of written) {
    await makeDirectory(dirname(join(dir, path)))
    await writeNewFile(join(dir, path), text, { replaces: true })
  }
  const removed = [...before.keys()].filter((path) => !files.has(path))
  for (const path of removed) await rm(join(dir, path))
  return { written: written.map(([path]) => path), removed, files: files.size }
}

export type ApplyChoices = {
  readonly drop: boolean
  readonly alter: boolean
  readonly dryRun: boolean
  /** The address of the administrator in whose name it is done. */
  readonly as?: string | undefined
}

export type ApplyReport = {
  readonly dryRun: boolean
  readonly steps: readonly {
    readonly do: 'create' | 'change' | 'drop'
    readonly what: string
    readonly file: string | null
    readonly details: readonly string[]
  }[]
  /** What only the installation has, and keeps. */
  readonly left: readonly string[]
  readonly warnings: readonly string[]
  /** The log's id of all of it; null where nothing was done. */
  readonly requestId: string | null
}

type ProjectWrites = ItemWrites & IdSource

/**
 * Brings the installation to the files, in one transaction. A dry run tries it: of the collections it asks what would happen,
 * everything else it does and takes back.
 *
 * @throws {AppError} that names the file and the member of what is refused; then nothing has changed
 */
export async function applyProject(deps: ProjectWrites, dir: string, choices: ApplyChoices): Promise<ApplyReport> {
  const paths = await pathsIn(dir)
  const files = readProject(paths.includes(manifest) ? await readTexts(dir, paths) : new Map())
  const requestId = deps.newId()
  const requester = await requesterOf(deps.db, choices.as, requestId)
  try {
    return await inTransaction(deps, requester, async (run) => {
      if (!choices.dryRun) await beginDdl(run.tx)
      const installation = await readInstallation(run.tx, await deps.catalog.reloadIfStale())
      const planned = plan(files, installation, choices)
      refuseErrors(files, planned.errors)
      requireAuthor(planned.steps, choices.as)
      const schemas = await applySchemas(deps, choices.dryRun ? undefined : run.tx, { files, planned, choices })
      run.scope.events.push(...schemas.events)
      await applySteps(deps, run, { ...installation, catalog: schemas.catalog ?? installation.catalog }, planned.steps)
      const warnings = [
        ...schemas.warnings,
        ...bypassing(planned.steps),
        ...(await withoutSecrets(run.tx, planned.steps)),
      ]
      const report = reportOf(planned, { dryRun: choices.dryRun, warnings, requestId })
      if (choices.dryRun) throw new NothingWritten(report)
      return report
    })
  } catch (error) {
    if (error instanceof NothingWritten) return error.report
    throw error
  }
}

/** Ends a transaction of which nothing shall remain. */
class NothingWritten extends Error {
  readonly report: ApplyReport
  constructor(report: ApplyReport) {
    super('nothing was written')
    this.report = report
  }
}

type SchemasToApply = {
  readonly files: ProjectFiles
  readonly planned: ProjectPlan
  readonly choices: Pick<ApplyChoices, 'drop' | 'alter'>
}

async function applySchemas(
  deps: ProjectWrites,
  tx: Tx | undefined,
  { files, planned: { schemas, removed }, choices: { drop, alter } }: SchemasToApply,
) {
  if (schemas.length + removed.length === 0) return { events: [], warnings: [], catalog: undefined }
  try {
    const done = await moveSchemas(deps, tx, { schemas, removed, drop, alter })
    return { ...done, warnings: warningsOf(done, alter) }
  } catch (error) {
    if (!(error instanceof MoveRefused)) throw error
    refuseErrors(files, error.errors, error)
    throw error
  }
}

function refuseErrors({ places }: ProjectFiles, errors: ProjectPlan['errors'], cause?: MoveRefused): void {
  if (errors.length === 0) return
  const words = errors.map(({ collectionName, error }) => {
    const file = collectionName === null ? undefined : places.get(collectionName)
    return `${file ?? collectionName ?? 'collections'}: ${error.replaceAll('?alter=true', '--alter')}`
  })
  throw new AppError(400, words.join('\n'), { code: cause?.code ?? 'PROJECT_INVALID', cause })
}

function warningsOf(
  { dropped, altered, warnings = [], preview }: Omit<Awaited<ReturnType<typeof moveSchemas>>, 'events'>,
  alter: boolean,
): readonly string[] {
  return [
    ...dropped.map(({ collection, field, rows, values }) => {
      const what = field === undefined ? collection : `${collection}.${field}`
      return `${what} goes${values === undefined ? '' : ` with ${values} values`}${rows === undefined ? '' : ` with ${rows} rows`}`
    }),
    ...altered.map((count) => {
      const what =
        'values' in count
          ? `${count.values} values of ${count.collection}.${count.field} become others`
          : `${count.restored} deleted rows of ${count.collection} come back`
      return alter ? what : `${what}: needs --alter`
    }),
    ...warnings.map(({ collection, field, message }) => `${collection}.${field} ${message}`),
    ...(preview?.findings ?? []).map(({ rule, object, why, safeWay }) => `${rule} (${object}): ${why} ${safeWay}`),
  ]
}

/** A workflow acts with the rights of its author, and a view has an owner; the platform is neither. */
function requireAuthor(steps: readonly Step[], as: string | undefined): void {
  if (as !== undefined) return
  const step = steps.find(
    (one) => one.do !== 'drop' && (one.part.kind === 'workflows' || (one.do === 'create' && one.part.kind === 'views')),
  )
  if (step === undefined || step.do === 'drop') return
  const { file, at, kind } = step.part
  const needs = kind === 'workflows' ? 'a workflow needs an author' : 'a view needs an owner'
  throw new AppError(400, `${file}: ${at}: ${needs}: name an administrator by --as EMAIL`, { code: 'PROJECT_INVALID' })
}

async function requesterOf(db: Reader, as: string | undefined, requestId: string): Promise<Requester> {
  const actor = { ...systemActor, userAgent: 'daybook project apply', requestId, logRequestId: requestId }
  if (as === undefined) return { actor, access: systemAccess }
  const user = await db.maybeOne<{ id: string; role: string }>(sql`
    select u.id::text, r.id::text as role from "svc_User" u
    join "svc_UserRole" ur on ur."user_Id" = u.id join "svc_Role" r on r.id = ur."role_Id"
    where lower(u.email) = lower(${as}) and u.status = 'active' and r.name = 'administrator' limit 1`)
  if (user === undefined) throw new AppError(400, `--as: ${as} is no active administrator`)
  return {
    actor: { ...actor, userId: user.id, roleId: user.role },
    access: { ...systemAccess, userId: user.id, roleId: user.role },
  }
}

function reportOf(
  { schemaSteps, steps, left }: ProjectPlan,
  { dryRun, warnings, requestId }: { dryRun: boolean; warnings: readonly string[]; requestId: string },
): ApplyReport {
  const all = [
    ...schemaSteps.map(({ do: what, collection, file, differences }) => ({
      do: what,
      what: `collection ${collection}`,
      file: file ?? null,
      details: differences,
    })),
    ...steps.map((step) => ({
      do: step.do,
      what: nameOf(step.do === 'drop' ? step.stored : step.part),
      file: step.do === 'drop' ? null : step.part.file,
      details: step.do === 'change' ? step.members.map((name) => `${name} changed`) : [],
    })),
  ]
  return {
    dryRun,
    steps: all,
    left,
    warnings,
    requestId: dryRun || all.length === 0 ? null : requestId,
  }
}

/** Nodes with the rights of the platform travel, since who applies a project has the database; they are not to be overlooked. */
function bypassing(steps: readonly Step[]): readonly string[] {
  return steps.flatMap((step) => {
    if (step.do === 'drop' || step.part.kind !== 'workflows') return []
    const { nodes } = Object(step.part.value.flow_data) as { readonly nodes?: unknown }
    const found = (Array.isArray(nodes) ? nodes : []).filter((node) => node?.data?.bypassPermissions === true)
    const ids = found.map(({ id }) => String(id))
    return ids.length === 0 ? [] : [`${nameOf(step.part)} bypasses permissions in ${ids.join(', ')}`]
  })
}

/** Secrets stay where they are set: a workflow fails until those that it names are set here too. */
async function withoutSecrets(db: Reader, steps: readonly Step[]): Promise<readonly string[]> {
  const workflows = steps.flatMap((step) => (step.do !== 'drop' && step.part.kind === 'workflows' ? [step.part] : []))
  if (workflows.length === 0) return []
  const rows = await db.any<{ name: string }>(sql`select name from "svc_Secret" where "tenant_Id" is null`)
  const known = new Set(rows.map(({ name }) => name))
  return workflows.flatMap((part) => {
    const named = JSON.stringify(part.value.flow_data).matchAll(/\{\{\s*secrets\.([\w-]+)/g)
    const missing = [...new Set([...named].map(([, name]) => name!))].filter((name) => !known.has(name))
    return missing.map((name) => `${nameOf(part)} needs the secret ${name}, which is not set here`)
  })
}

/** Paths of the files of a directory and of its folders; none where it is not there. What begins with a dot is passed over. */
async function pathsIn(dir: string): Promise<readonly string[]> {
  const entries: readonly Dirent[] = await readdir(dir, { withFileTypes: true }).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  })
  const shown = entries.filter(({ name }) => !name.startsWith('.'))
  const files = shown.filter((entry) => !entry.isDirectory()).map(({ name }) => name)
  // What has no manifest is somebody else's, and may be large.
  if (!files.includes(manifest)) return shown.map(({ name }) => name)
  for (const { name: folder } of shown.filter((entry) => entry.isDirectory())) {
    const inside = await readdir(join(dir, folder), { withFileTypes: true })
    const own = inside.filter((entry) => !entry.isDirectory() && !entry.name.startsWith('.'))
    files.push(...own.map(({ name }) => `${folder}/${name}`))
  }
  return files.sort()
}

async function readTexts(dir: string, paths: readonly string[]): Promise<FileTexts> {
  const files = new Map<string, string>()
  for (const path of paths) files.set(path, await readFile(join(dir, path), 'utf8'))
  return files
}

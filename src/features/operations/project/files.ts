import { problemsOf, Type } from '../../../adapters/typebox.ts'
import type { CollectionDefinition } from '../../../catalog/catalog.ts'
import { AppError } from '../../../errors.ts'
import { isObject } from '../../../query/guards.ts'

/** A project as files, and files as a project. Pure: nothing here reads a disk or a database. */

/** The parts of a project, each with a folder; the settings are one file. */
export const kinds = ['collections', 'roles', 'rules', 'workflows', 'templates', 'pages', 'views', 'settings'] as const

export type Kind = (typeof kinds)[number]

/** Permissions stand in the files of their roles. */
export type PartKind = Exclude<Kind, 'collections'> | 'permissions'

export type Value = Readonly<Record<string, unknown>>

/** A part as files and installations have it: by a name that means the same everywhere. */
export type Part = {
  readonly kind: PartKind
  readonly key: string
  readonly value: Value
}

/** A part of a file. */
export type FilePart = Part & {
  readonly file: string
  /** Its place in the file. */
  readonly at: string
}

export type ProjectFiles = {
  /** The kinds that the project describes as a whole; of others it says nothing. */
  readonly holds: ReadonlySet<Kind>
  readonly schemas: readonly CollectionDefinition[]
  /** The file of each collection. */
  readonly places: ReadonlyMap<string, string>
  readonly parts: readonly FilePart[]
}

/** The definition of an installation that goes into files. */
export type ProjectContent = {
  readonly schemas: readonly CollectionDefinition[]
  readonly parts: readonly Part[]
}

/** Files by their path below the directory of the project. */
export type FileTexts = ReadonlyMap<string, string>

export const manifest = 'project.json'
const formatVersion = '1.0'

/** The members of each kind, in the order in which files have them. */
export const members = {
  roles: ['name', 'description', 'isTenantSpecific', 'app_access', 'canInviteRoles'],
  permissions: ['collection', 'action', 'fields', 'conditions', 'relConditions', 'defaultValues', 'acls'],
  rules: ['name', 'description', 'fields', 'conditions', 'relConditions', 'defaultValues'],
  workflows: [
    ...['id', 'name', 'description', 'status', 'trigger_type', 'trigger_cron', 'trigger_webhook_path'],
    ...['trigger_webhook_method', 'trigger_hook_collection', 'trigger_hook_action', 'allowed_roles', 'variables'],
    ...['options', 'flow_data'],
  ],
  templates: ['type', 'subject', 'isActive', 'description', 'body'],
  pages: ['slug', 'name', 'icon', 'description', 'parent', 'sort', 'isPublic', 'enabled', 'options', 'blocks'],
  views: ['name', 'page', 'collection', 'role', 'query'],
} as const

/** Settings that say what a product is. Addresses, mail servers, files and secrets belong to an installation. */
export const portableSettings: readonly string[] = [
  ...['project_name', 'title', 'project_color', 'secondary_color', 'description', 'keywords', 'email_signature'],
  ...['from_email_name', 'timezone', 'language', 'date_format', 'currency', 'session_limits', 'metadata', 'modules'],
]

/** The members that name a part; the others may be left out, and then say nothing. */
const naming = {
  roles: ['name'],
  permissions: ['collection', 'action'],
  rules: ['name'],
  workflows: ['id'],
  templates: ['type'],
  pages: ['slug'],
  views: ['name', 'page'],
} as const

/** Of these a member that is left out is null, as in every file of them: it is a right or a condition, and no default. */
const isWhole = (kind: PartKind): boolean => kind === 'permissions' || kind === 'rules'

/** Members that other exports add, of which only the server decides. */
const passedOver: ReadonlySet<string> = new Set(['createdAt', 'updatedAt', 'version'])

export const permissionKey = (role: string, collection: string, action: string): string =>
  [role, collection, action].join('\n')

export function keyOf(kind: PartKind, value: Value, role = ''): string {
  if (kind === 'permissions') return permissionKey(role, String(value.collection), String(value.action))
  if (kind === 'settings') return 'settings'
  if (kind === 'views') return [value.page, value.collection ?? '', value.role ?? '', value.name].map(String).join('\n')
  return String(value[naming[kind][0]])
}

/** How a part is called in what people read. */
export function nameOf({ kind, key }: Pick<Part, 'kind' | 'key'>): string {
  const words = key.split('\n')
  if (kind === 'settings') return 'settings'
  if (kind === 'permissions') return `permission of ${words[0]} to ${words[2]} ${words[1]}`
  if (kind === 'views') return `view ${words[3]} of ${words[2]}`
  return `${kind.slice(0, -1)} ${key}`
}

/** The files of a project, sorted; what a name or a default says already is not in them. */
export function filesOf({ schemas, parts }: ProjectContent): FileTexts {
  const files = new Map<string, unknown>([[manifest, { version: formatVersion, holds: kinds }]])
  const of = (kind: PartKind) => parts.filter((part) => part.kind === kind)
  place(files, 'collections', schemas, ({ collectionName, schema }) => [
    collectionName,
    { version: formatVersion, schemas: [{ collectionName, schema }] },
  ])
  const permissions = Map.groupBy(of('permissions'), ({ key }) => key.split('\n')[0])
  place(files, 'roles', of('roles'), ({ key, value }) => {
    const own = sorted(permissions.get(key) ?? [], (one) => one.key).map((one) => ordered('permissions', one.value))
    return [key, { version: formatVersion, roles: [{ ...ordered('roles', value), permissions: own }] }]
  })
  for (const kind of ['rules', 'pages', 'views'] as const)
    place(files, kind, of(kind), ({ key, value }) => [
      key.replaceAll('\n', '-'),
      { version: formatVersion, [kind]: [ordered(kind, value)] },
    ])
  place(files, 'workflows', of('workflows'), ({ key, value }) => [
    key,
    { version: formatVersion, workflows: [ordered('workflows', value)] },
  ])
  const bodies = new Map<unknown, string>()
  place(files, 'templates', of('templates'), ({ key, value: { body, ...value } }) => {
    const json = { version: formatVersion, templates: [ordered('templates', value)] }
    bodies.set(json, String(body))
    return [key, json]
  })
  for (const { value } of of('settings')) files.set('settings.json', { version: formatVersion, settings: value })
  const texts = [...files].flatMap(([path, json]) => {
    const text = [path, `${JSON.stringify(json, null, 2)}\n`] as const
    const body = bodies.get(json)
    // Text as it is, so that a change of a line is a change of a line.
    return body === undefined ? [text] : [text, [bodyOf(path), body] as const]
  })
  return new Map(texts.sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** The file of the body of a template. */
const bodyOf = (file: string): string => file.replace(/\.json$/, '.html')

const sorted = <T>(list: readonly T[], name: (one: T) => string): readonly T[] =>
  [...list].sort((a, b) => (name(a) < name(b) ? -1 : 1))

function ordered(kind: Exclude<PartKind, 'settings'>, value: Value): Value {
  return Object.fromEntries(members[kind].flatMap((name) => (value[name] === undefined ? [] : [[name, value[name]]])))
}

/** One file for each; names that differ only where some systems see no difference get a number. */
function place<T>(
  files: Map<string, unknown>,
  kind: Kind,
  list: readonly T[],
  fileOf: (one: T) => readonly [name: string, json: unknown],
): void {
  const taken = new Map<string, number>()
  for (const [name, json] of sorted(list.map(fileOf), ([name]) => name)) {
    const safe = fileName(name)
    const earlier = taken.get(safe.toLowerCase()) ?? 0
    taken.set(safe.toLowerCase(), earlier + 1)
    files.set(`${kind}/${safe}${earlier === 0 ? '' : `~${earlier + 1}`}.json`, json)
  }
}

/** Whatever a file system may not take is written as in an address. */
const fileName = (name: string): string =>
  encodeURIComponent(name).replaceAll('%20', ' ').replaceAll('*', '%2A').replace(/^\./, '%2E')

/*
 * Reading.
 */

const Json = Type.Object({})
const Manifest = Type.Object({
  version: Type.Literal(formatVersion),
  holds: Type.Array(Type.Union(kinds.map((kind) => Type.Literal(kind)))),
})
const Schemas = Type.Object({
  schemas: Type.Array(Type.Object({ collectionName: Type.String({ minLength: 1 }), schema: Json })),
})

/** 400 for a directory that is no project, and for the first file that does not fit, with the file and the member. */
export function readProject(files: FileTexts): ProjectFiles {
  const text = files.get(manifest)
  if (text === undefined)
    throw new AppError(400, `${manifest}: it is missing, so this is no project; npx daybook project export makes one`)
  const { holds } = checked(manifest, Manifest, jsonOf(manifest, text)) as { readonly holds: readonly Kind[] }
  const schemas: CollectionDefinition[] = []
  const places = new Map<string, string>()
  const parts: FilePart[] = []
  for (const [file, content] of sorted([...files], ([file]) => file)) {
    const kind = kindOf(file)
    if (kind === undefined) continue
    if (!holds.includes(kind)) throw refused(file, '', `${kind} is not among holds of ${manifest}`)
    if (file.endsWith('.html')) requireDescribed(files, file)
    else if (kind === 'collections') readSchemas(file, content, schemas, places)
    else parts.push(...partsOf(kind, file, jsonOf(file, content), files))
  }
  refuseTwice(parts)
  return { holds: new Set(holds), schemas, places, parts }
}

function kindOf(file: string): Kind | undefined {
  if (file === manifest) return undefined
  if (file === 'settings.json') return 'settings'
  const [folder, ...rest] = file.split('/')
  const kind = kinds.find((one) => one !== 'settings' && one === folder)
  if (kind !== undefined && rest.length === 1 && (file.endsWith('.json') || isBody(file))) return kind
  if (file.endsWith('.json')) throw refused(file, '', `no part of a project: it has ${kinds.join(', ')}`)
  return undefined
}

const isBody = (file: string): boolean => file.startsWith('templates/') && file.endsWith('.html')

/** Whether a file of a directory is one that an export writes. */
export const isOwnFile = (file: string): boolean =>
  file === manifest ||
  file === 'settings.json' ||
  (kinds.some((kind) => file.startsWith(`${kind}/`)) && isInFolder(file))

const isInFolder = (file: string) => file.split('/').length === 2 && (file.endsWith('.json') || isBody(file))

function requireDescribed(files: FileTexts, file: string): void {
  const beside = file.replace(/\.html$/, '.json')
  if (!files.has(beside)) throw refused(file, '', `${beside} is missing, which says what it is`)
}

function readSchemas(file: string, text: string, schemas: CollectionDefinition[], places: Map<string, string>): void {
  const read = checked(file, Schemas, jsonOf(file, text)) as { readonly schemas: readonly CollectionDefinition[] }
  for (const [i, { collectionName, schema }] of read.schemas.entries()) {
    const other = places.get(collectionName)
    if (other !== undefined) throw refused(file, `schemas[${i}]`, `${collectionName} is in ${other} too`)
    places.set(collectionName, file)
    schemas.push({ collectionName, schema })
  }
}

function partsOf(kind: Exclude<Kind, 'collections'>, file: string, json: unknown, files: FileTexts): FilePart[] {
  const list = isObject(json) ? json[kind] : undefined
  if (kind === 'settings') {
    if (!isObject(list)) throw refused(file, 'settings', 'must be an object')
    const foreign = Object.keys(list).find((name) => !portableSettings.includes(name))
    if (foreign !== undefined)
      throw refused(file, `settings.${foreign}`, `does not travel: a project has ${portableSettings.join(', ')}`)
    return [{ kind, key: 'settings', value: list, file, at: 'settings' }]
  }
  if (!Array.isArray(list)) throw refused(file, kind, 'must be a list')
  return list.flatMap((entry: unknown, i) => {
    const at = `${kind}[${i}]`
    const value = readValue(kind, entry, file, at)
    if (kind === 'templates') return [templateOf(value, file, at, files)]
    const part = { kind, key: keyOf(kind, value), value, file, at }
    return kind === 'roles' ? [part, ...permissionsOf(part, entry as Value)] : [part]
  })
}

function permissionsOf({ key: role, file, at }: FilePart, { permissions = [] }: Value): FilePart[] {
  if (!Array.isArray(permissions)) throw refused(file, `${at}.permissions`, 'must be a list')
  return permissions.map((entry: unknown, i) => {
    const place = `${at}.permissions[${i}]`
    const value = readValue('permissions', entry, file, place)
    return { kind: 'permissions', key: keyOf('permissions', value, role), value, file, at: place }
  })
}

function templateOf(value: Value, file: string, at: string, files: FileTexts): FilePart {
  const body = value.body ?? files.get(bodyOf(file))
  if (body === undefined) throw refused(file, at, `${bodyOf(file)} is missing, which is its body`)
  return { kind: 'templates', key: keyOf('templates', value), value: { ...value, body }, file, at }
}

function readValue(kind: Exclude<PartKind, 'settings'>, entry: unknown, file: string, at: string): Value {
  if (!isObject(entry)) throw refused(file, at, 'must be an object')
  const known: readonly string[] = members[kind]
  const isKnown = (name: string) =>
    known.includes(name) || passedOver.has(name) || (kind === 'roles' && name === 'permissions')
  const unknown = Object.keys(entry).find((name) => !isKnown(name))
  if (unknown !== undefined)
    throw refused(file, `${at}.${unknown}`, `is no member of ${kind}: these have ${known.join(', ')}`)
  const nameless = naming[kind].find((name) => typeof entry[name] !== 'string' || entry[name] === '')
  if (nameless !== undefined) throw refused(file, `${at}.${nameless}`, 'is required, as text')
  if (kind === 'pages' && entry.blocks !== undefined && !(Array.isArray(entry.blocks) && entry.blocks.every(isObject)))
    throw refused(file, `${at}.blocks`, 'must be a list of objects')
  const given = known.filter((name) => Object.hasOwn(entry, name) || isWhole(kind))
  const value: Value = Object.fromEntries(given.map((name) => [name, entry[name] ?? null]))
  if (kind === 'pages' && Array.isArray(value.blocks)) return { ...value, blocks: blocksOf(value.blocks) }
  if (kind === 'roles' && Array.isArray(value.canInviteRoles))
    return { ...value, canInviteRoles: [...value.canInviteRoles].map(String).sort() }
  return kind === 'permissions' && value.acls === null ? { ...value, acls: undefined } : value
}

const blockMembers = ['type', 'collection', 'position', 'config', 'configVersion']

/** Blocks as they are compared. Where one stands is in its position; rows have no order of their own. */
export const blocksOf = (blocks: readonly Value[]): readonly Value[] =>
  sorted(
    blocks.map((block) => Object.fromEntries(blockMembers.map((name) => [name, block[name] ?? null]))),
    canonical,
  )

/** The same text for the same value, whatever the order of its members. */
export const canonical = (value: unknown): string =>
  JSON.stringify(value, (_name, inner: unknown) =>
    isObject(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1))) : inner,
  )

function refuseTwice(parts: readonly FilePart[]): void {
  for (const [first, second] of Map.groupBy(parts, ({ kind, key }) => `${kind}\n${key}`).values())
    if (second !== undefined)
      throw refused(second.file, second.at, `${nameOf(second)} is in ${first!.file} (${first!.at}) too`)
}

function jsonOf(file: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new AppError(400, `${file}: is not JSON: ${(error as Error).message}`, { cause: error })
  }
}

function checked(file: string, shape: Parameters<typeof problemsOf>[0], json: unknown): unknown {
  const [problem] = problemsOf(shape, json)
  if (problem === undefined) return json
  throw refused(file, problem.instancePath.slice(1).replaceAll('/', '.'), problem.message)
}

export const refused = (file: string, member: string, message: string): AppError =>
  new AppError(400, [file, member, message].filter((word) => word !== '').join(': '), { code: 'PROJECT_INVALID' })

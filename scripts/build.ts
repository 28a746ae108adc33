import { execFileSync } from 'node:child_process'
import { cpSync, globSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { bundleForBrowsers } from '../src/adapters/bundler.ts'

/*
 * `npm run build`: `dist/`, what the package runs from. It is the tree of the checkout with JavaScript in the place of TypeScript, so that
 * what the program finds beside itself (migrations, pages, the client) is where it is here.
 */

const root = join(import.meta.dirname, '..')
const dist = join(root, 'dist')

export type Manifest = {
  readonly version: string
  readonly license: string
  readonly dependencies: Readonly<Record<string, string>>
  readonly peerDependencies: Readonly<Record<string, string>>
}

const manifest: Manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

async function build(): Promise<void> {
  const began = new Date()
  rmSync(dist, { recursive: true, force: true })
  // `npm run check` has looked at the types; here they are only left out.
  run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json')
  for (const file of globSync('src/**/*.{html,css,js,png}', { cwd: root })) copy(file)
  copy('templates')
  write('clients/package.json', clientManifest(manifest))
  cpSync(join(root, 'LICENSE'), join(dist, 'clients/LICENSE'))
  for (const module of ['client', 'console-extension']) {
    const bundle = join(dist, `clients/dist/${module}.js`)
    mkdirSync(dirname(bundle), { recursive: true })
    writeFileSync(bundle, await bundleForBrowsers(join(root, `clients/${module}.ts`)))
  }
  copy('clients/console-extension.css')
  buildConsole()
  // The last of all: a build that broke off has none, so it is not taken for whole.
  write('package.json', { name: 'daybook', version: manifest.version, type: 'module', private: true })
  // As old as what it was made of: what was changed meanwhile is newer.
  utimesSync(join(dist, 'package.json'), began, began)
}

/** The console has a build of its own, which puts what browsers load into `console/dist`. */
function buildConsole(): void {
  run('console/build.ts', '--if-stale')
  copy('console/dist')
}

/** The client on its own, for front ends: the same files as `daybook/client`. */
function clientManifest({ version, license, dependencies, peerDependencies }: Manifest): object {
  const entry = (name: string) => ({ types: `./${name}.d.ts`, default: `./${name}.js` })
  return {
    name: '@daybook/client',
    version,
    description: 'The typed client of Daybook, for browsers and Node.',
    type: 'module',
    license,
    sideEffects: false,
    // Neither what the console's extensions load nor what servers give to browsers.
    files: ['*.js', '*.js.map', '*.d.ts', '!console-*'],
    exports: { '.': entry('client'), './react': entry('react'), './package.json': './package.json' },
    dependencies: { 'socket.io-client': dependencies['socket.io-client'] },
    peerDependencies: { react: peerDependencies.react },
    peerDependenciesMeta: { react: { optional: true } },
  }
}

function run(script: string, ...args: readonly string[]): void {
  execFileSync(process.execPath, [join(root, script), ...args], { cwd: root, stdio: 'inherit' })
}

function copy(path: string): void {
  cpSync(join(root, path), join(dist, path), { recursive: true })
}

function write(path: string, content: object): void {
  writeFileSync(join(dist, path), `${JSON.stringify(content, null, 2)}\n`)
}

if (import.meta.main) await build()

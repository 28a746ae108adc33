#!/usr/bin/env node
/*
 * `npx daybook`. This file alone is written for every Node from 20 on: the program needs 24, which a project brings as its package
 * `node`, whatever Node the machine has.
 */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const neededMajor = 24
const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const built = join(root, 'dist/src/cli')
/** A checkout runs from its sources, whether or not it was built: what is packed has none. */
const sources = join(root, 'src/cli')
const [major] = process.versions.node.split('.')

if (Number(major) >= neededMajor) await import(moduleOf('main'))
else if (process.argv[2] === 'init' && !existsSync(sources)) await import(moduleOf('init-process'))
else runOn(ownNode())

function moduleOf(name) {
  return pathToFileURL(existsSync(sources) ? join(sources, `${name}.ts`) : join(built, `${name}.js`)).href
}

/** The package `node` of the project here, or of the directory that this package is installed in. */
function ownNode() {
  for (const start of [process.cwd(), root])
    for (let dir = start; ; dir = dirname(dir)) {
      const home = join(dir, 'node_modules/node')
      if (existsSync(home) && majorOf(home) >= neededMajor) return home
      if (dir === dirname(dir)) break
    }
  return undefined
}

function majorOf(home) {
  return Number(JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')).version.split('.')[0])
}

/** Gives way to a process of that Node: it gets the signals of this one, and ends with it. */
function runOn(home) {
  const node = home && join(home, 'bin/node')
  if (node === undefined || !existsSync(node)) {
    const remedy =
      node === undefined
        ? `npm install --save-dev node@${neededMajor} brings one to this project`
        : 'npm has not run the install script of the package node: allow it (allowScripts of package.json), then npm rebuild node'
    process.stderr.write(`Daybook needs Node ${neededMajor} or newer, this is ${process.versions.node}: ${remedy}\n`)
    process.exitCode = 1
    return
  }
  const args = [fileURLToPath(import.meta.url), ...process.argv.slice(2)]
  const child = spawn(node, args, { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] })
  for (const signal of ['SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  // A terminal's Ctrl-C has reached the child already.
  process.on('SIGINT', () => undefined)
  child.on('exit', (code, signal) => {
    if (signal === null) process.exit(code)
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  })
}

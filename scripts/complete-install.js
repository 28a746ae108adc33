/*
 * Runs after `npm install`. npm leaves out optional packages that ask for a newer Node than its own, which may be older than the
 * one that the project brings: here they are installed from the lock file, with the project's Node.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const { optionalDependencies } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'))
const isMissing = Object.keys(optionalDependencies).some((name) => !existsSync(`${root}node_modules/${name}`))
const node = `${root}node_modules/node/bin/node`
const npm = process.env.npm_execpath
const [, major] = /node\/v(\d+)/.exec(process.env.npm_config_user_agent ?? '') ?? []

if (isMissing && Number(major) < 24 && npm !== undefined && existsSync(node)) {
  // Scripts have run already, this one among them.
  const args = [npm, 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save']
  const { status } = spawnSync(node, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) console.warn('Optional packages could not be installed: scripts of workflows will not run here.')
}

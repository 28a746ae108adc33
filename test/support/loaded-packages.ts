import { writeSync } from 'node:fs'
import { registerHooks } from 'node:module'

/*
 * Preloaded by a process (`NODE_OPTIONS=--import=…`): says at its end which packages and which of our own files it has loaded, one
 * line of JSON.
 */

const packages = new Set<string>()
const sources = new Set<string>()

registerHooks({
  resolve: (specifier, context, next) => {
    const found = next(specifier, context)
    const [, name] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!package\.json$)/.exec(found.url) ?? []
    if (name !== undefined) packages.add(name)
    const [own] = /(?<=\/)src\/(?!.*node_modules).*/.exec(found.url) ?? []
    if (own !== undefined) sources.add(own)
    return found
  },
})

process.on('exit', () => writeSync(1, `${JSON.stringify({ packages: [...packages], sources: [...sources] })}\n`))

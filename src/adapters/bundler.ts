import type * as Esbuild from 'esbuild'
import { onFirstUse } from '../language/once.ts'

const esbuild = onFirstUse<typeof Esbuild>('esbuild')

/**
 * One ES module of a module and all that it imports, for browsers. The bundler is there in a checkout only: what is
 * installed without it has its modules bundled.
 *
 * @throws {Error} where the bundler is missing, or the module cannot be bundled
 */
export async function bundleForBrowsers(entry: string, external: readonly string[] = []): Promise<Buffer> {
  const { outputFiles } = await esbuild().build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    external: [...external],
    legalComments: 'none',
  })
  return Buffer.from(outputFiles[0]!.contents)
}

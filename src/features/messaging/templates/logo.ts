import { lstatSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import type { InlineImage } from '../../../adapters/mailer.ts'
import { ConfigError } from '../../../config/config.ts'

/** A PNG that mails show where the settings name no icon. */
export type MailLogo = { readonly mailLogo: Buffer }

/** What `logo_url` is: the image that comes with the mail. */
export const logoAddress = 'cid:logo'

/** Bytes; it is part of every mail. */
const largest = 256 * 1024
const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/**
 * The PNG at `templates/logo/logo.png` of the extensions, else the default logo. It goes to
 * strangers, so nothing may lead elsewhere: a link is refused.
 *
 * @throws {ConfigError} for a link, for what is no PNG and for what is too large
 */
export function readLogo(extensionsDir: string): Buffer {
  const path = join('templates', 'logo', 'logo.png')
  const file = join(extensionsDir, path)
  const found = lstatSync(file, { throwIfNoEntry: false })
  if (found === undefined) return readFileSync(new URL('./logo.png', import.meta.url))
  const isItself = found.isFile() && realpathSync(file) === join(realpathSync(extensionsDir), path)
  if (!isItself) throw new ConfigError(`EXTENSIONS_DIR: ${file} is a link or no file`)
  if (found.size > largest) throw new ConfigError(`EXTENSIONS_DIR: ${file} is larger than ${largest} bytes`)
  const image = readFileSync(file)
  if (!image.subarray(0, signature.length).equals(signature))
    throw new ConfigError(`EXTENSIONS_DIR: ${file} is not a PNG`)
  return image
}

/** What has to be sent with the HTML so that its logo shows. */
export function inlineImages(html: string, logo: Buffer): readonly InlineImage[] {
  return html.includes(logoAddress) ? [{ cid: 'logo', contentType: 'image/png', content: logo }] : []
}

/** The same HTML for a browser, which knows no parts of mails. */
export function withEmbeddedLogo(html: string, logo: Buffer): string {
  return html.replaceAll(logoAddress, `data:image/png;base64,${logo.toString('base64')}`)
}

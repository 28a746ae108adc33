import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, startConsole } from '../support/console.ts'
import { dragFiles, pasteFiles } from '../support/drops.ts'
import { plain } from '../support/images.ts'
import { waitFor } from '../support/wait.ts'

/** Files that are dropped on the console, or pasted. */
describeWithBrowser('files that are dropped on the console', () => {
  let console_: Console

  beforeAll(async () => {
    console_ = await startConsole()
    const fields = {
      name: { type: 'String' },
      cover: { relType: 'BelongsTo', target: 'svc_File' },
      pictures: { relType: 'BelongsToMany', target: 'svc_File', through: 'album_picture' },
    }
    const { status } = await console_.api.admin('POST', '/schemas', { collectionName: 'album', schema: { fields } })
    expect(status).toBe(201)
  })

  const names = async (): Promise<string[]> =>
    (await console_.api.admin('GET', '/files?fields=originalFilename&sort=originalFilename')).body.data.map(
      ({ originalFilename }: { originalFilename: string }) => originalFilename,
    )
  const removeFiles = async () => {
    const { data } = (await console_.api.admin('GET', '/files?fields=id')).body
    for (const { id } of data) await console_.api.admin('DELETE', `/files/${id}`)
  }

  it('uploads those dropped on the list of files, names each refused one, and shows where they go', async () => {
    const { page, wrong } = await console_.visit('/operations/files')
    let begun = 0
    await page.route('**/files/tus', (route) => {
      begun += 1
      const error = { message: 'The file is too large', code: 'FILE_TOO_LARGE', details: null, statusCode: 413 }
      return begun === 2 ? route.fulfill({ status: 413, json: { error } }) : route.continue()
    })
    await page.getByText('There is no file').waitFor()
    await using drag = await dragFiles(page, { 'a.txt': 'a', 'large.txt': 'large', 'z.txt': 'z' })
    const hint = page.getByText('Drop to upload')
    await page.emulateMedia({ forcedColors: 'active' })
    await drag.over(page.getByText('There is no file'))
    await hint.waitFor()
    const look = await hint.evaluate((one: any) => {
      const { outlineStyle, outlineWidth } = one.ownerDocument.defaultView.getComputedStyle(one.parentElement)
      return { outlineStyle, outlineWidth }
    })
    expect(look).toEqual({ outlineStyle: 'dashed', outlineWidth: '2px' })
    await drag.over(page.getByRole('heading', { level: 1 }))
    await hint.waitFor({ state: 'detached' })
    const before = await console_.api.position()
    await drag.drop(page.getByText('There is no file'))
    await page.getByText('2 of 3 files were uploaded').first().waitFor()
    await page
      .getByText(/^large\.txt: The file is too large/)
      .first()
      .waitFor()
    const list = page.getByRole('region', { name: 'files' })
    for (const name of ['a.txt', 'z.txt']) await list.getByRole('row').filter({ hasText: name }).waitFor()
    expect(await names()).toEqual(['a.txt', 'z.txt'])
    const created = (await console_.api.log(before)).filter(({ action }) => action === 'create')
    expect(created.map(({ entity }) => entity)).toEqual(['svc_File', 'svc_File'])
    expect(await hint.count()).toBe(0)
    expect(wrong.filter((text) => !text.includes('413'))).toEqual([])
    await removeFiles()
  })

  it('uploads a pasted image to the list of files, and leaves text to the browser', async () => {
    const { page, wrong } = await console_.visit('/operations/files')
    await page.getByText('There is no file').waitFor()
    const png = await plain(40, 20).png().toBuffer()
    await pasteFiles(page, { 'of-a-table.png': png }, 'a table')
    await pasteFiles(page, { 'screen.png': png })
    await page.getByRole('region', { name: 'files' }).getByRole('row').filter({ hasText: 'screen.png' }).waitFor()
    expect(await names()).toEqual(['screen.png'])
    expect(wrong).toEqual([])
    await removeFiles()
  })

  it('fills the fields of a record, one file where one is allowed', async () => {
    const { page, wrong } = await console_.visit('/data/album/new')
    const png = await plain(40, 20).png().toBuffer()
    const one = page.getByRole('button', { name: 'Upload a file' })
    const many = page.getByRole('button', { name: 'Upload files' })
    await using pair = await dragFiles(page, { 'front.png': png, 'side.png': png })
    await pair.drop(one)
    await page.getByText('One file at a time').first().waitFor()
    expect(await names()).toEqual([])
    await pair.drop(many)
    for (const name of ['front.png', 'side.png']) await page.getByRole('button', { name: `Remove ${name}` }).waitFor()
    await using single = await dragFiles(page, { 'cover.png': png })
    await single.drop(one)
    await waitFor(async () => (await page.getByLabel('cover_Id').inputValue()) === 'cover.png')
    await many.focus()
    await pasteFiles(page, { 'pasted.png': png })
    await page.getByRole('button', { name: 'Remove pasted.png' }).waitFor()
    await page.getByLabel(/^name/).fill('Trip')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Trip' }).waitFor()
    const { body } = await console_.api.admin(
      'GET',
      '/items/album?fields=cover.originalFilename,pictures.originalFilename',
    )
    const [{ cover, pictures }] = body.data
    expect(cover).toMatchObject({ originalFilename: 'cover.png' })
    expect(pictures.map((file: { originalFilename: string }) => file.originalFilename).sort()).toEqual([
      'front.png',
      'pasted.png',
      'side.png',
    ])
    expect(wrong).toEqual([])
    await console_.api.admin(
      'DELETE',
      '/items/album/bulk',
      (await console_.api.admin('GET', '/items/album')).body.data.map(({ id }: { id: string }) => id),
    )
    await removeFiles()
  })

  it('reads the rows of a file dropped on the dialog for imports', async () => {
    const { page, wrong } = await console_.visit('/data/album')
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page.getByRole('menuitem', { name: /^Import/ }).click()
    const dialog = page.getByRole('dialog', { name: 'Import into album' })
    await using drag = await dragFiles(page, { 'rows.csv': 'Name\nBy the sea\n' })
    await drag.over(dialog.getByLabel('File'))
    await page.getByText('Drop to choose the file').waitFor()
    await drag.drop(dialog.getByLabel('File'))
    await dialog.getByRole('row', { name: 'Name By the sea' }).waitFor()
    expect(wrong).toEqual([])
  })

  it('stays where it is when a file is dropped anywhere else', async () => {
    const { page, wrong } = await console_.visit('/data/album')
    const place = page.getByRole('heading', { level: 1 })
    await place.waitFor()
    await using drag = await dragFiles(page, { 'page.html': '<h1>elsewhere</h1>' })
    // A browser opens a dropped file unless the page has said that it does not want it; a headless one never does.
    await page.evaluate(
      `window.refused = []
      for (const type of ['dragover', 'drop'])
        addEventListener(type, ({ defaultPrevented, dataTransfer }) => refused.push(defaultPrevented && dataTransfer.dropEffect))`,
    )
    await drag.drop(place)
    const refused = await waitFor(async () => {
      const all = (await page.evaluate('window.refused')) as unknown[]
      return all.length > 0 && all
    })
    expect(new Set(refused)).toEqual(new Set(['none']))
    expect(wrong).toEqual([])
  })
})

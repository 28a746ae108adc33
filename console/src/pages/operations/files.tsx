import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { FileRow } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'
import { looks } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { DropArea } from '../../ui/drop.tsx'
import { takeFiles } from '../../ui/field.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import { Uploading, useUpload } from '../data/upload.tsx'
import { Facts, List, type Listing, moment, pageSize, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type File = FileRow & { readonly createdAt: string; readonly width: number | null; readonly height: number | null }

/** Images of which smaller ones are made. */
const isImage = ({ type }: File) => /^image\/(png|jpeg|webp|gif|avif)$/.test(type)

/** A signed address lasts an hour. */
const signedSeconds = 3600

const files = (set: SectionProps['set'], onAddress: (address: string) => void): Listing<File> => ({
  name: 'files',
  title: 'Name',
  read: async ({ find, page = 1 }) => {
    const { data, totalCount } = await client.request<{ data: readonly File[]; totalCount: number }>('/files', {
      query: {
        sort: '-createdAt',
        limit: pageSize,
        page,
        ...(find !== undefined && { search: find, searchFields: 'title,originalFilename,type,folder' }),
      },
    })
    return { rows: data, total: totalCount }
  },
  readOne: async (id) => (await client.files.read(id)) as File,
  keyOf: ({ id }) => id,
  titleOf: ({ title, originalFilename }) => title ?? originalFilename,
  columns: [
    {
      title: <span className="visually-hidden">Thumbnail</span>,
      cell: (file) =>
        isImage(file) && (
          <img
            className={styles.thumb}
            alt=""
            loading="lazy"
            src={client.files.address(file.id, { width: 96, height: 96, fit: 'cover' })}
          />
        ),
    },
    { title: 'Type', cell: ({ type }) => type },
    { title: 'Size', isNumber: true, cell: ({ size }) => sizeText(size) },
    { title: 'Folder', cell: ({ folder }) => folder },
    { title: 'For', cell: ({ isPublic }) => (isPublic ? <Badge tone="warn">everybody</Badge> : null) },
    { title: 'Uploaded', cell: ({ createdAt }) => moment(createdAt) },
  ],
  find: 'Name, type or folder',
  actions: [
    {
      label: 'Signed address',
      run: async ({ id }) => {
        onAddress(await client.files.signedAddress(id, signedSeconds))
        return undefined
      },
    },
    {
      label: 'Delete',
      isDangerous: true,
      question: ({ originalFilename }) => `${originalFilename} goes with its content and every image made of it.`,
      run: async ({ id }) => {
        await client.files.delete(id)
        set({ open: undefined })
        return 'Deleted'
      },
    },
  ],
  detail: (file) => (
    <>
      {isImage(file) && (
        <img
          className={styles.picture}
          alt={file.description ?? ''}
          src={client.files.address(file.id, { width: 800 })}
        />
      )}
      <Facts
        of={[
          ['Name', file.originalFilename],
          ['Type', file.type],
          ['Size', sizeText(file.size)],
          ['Pixels', file.width === null ? null : `${file.width} × ${file.height}`],
          ['Description', file.description],
          ['Folder', file.folder],
          ['Storage', file.storage],
          ['For', file.isPublic ? 'everybody' : 'those with the permission'],
          ['Uploaded', moment(file.createdAt)],
          [
            'Record',
            <Link key="record" to="/data/$collection/$id" params={{ collection: 'svc_File', id: file.id }}>
              all fields, to change them too
            </Link>,
          ],
        ]}
      />
      <a {...looks()} href={client.files.address(file.id, { download: true })} download>
        Download
      </a>
    </>
  ),
  empty: { title: 'There is no file' },
})

function sizeText(bytes: number | string): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let size = Number(bytes)
  let unit = 0
  for (; size >= 1000 && unit < units.length - 1; unit += 1) size /= 1000
  return `${size.toLocaleString(undefined, { maximumFractionDigits: 1 })} ${units[unit]}`
}

/** All files; new ones are dropped, pasted, or chosen by a button. */
export function Files(props: SectionProps) {
  const [address, setAddress] = useState<string>()
  const { running, send } = useUpload()
  const upload = async (chosen: readonly globalThis.File[]) => {
    const areAllHere = await send(chosen, () => undefined)
    if (areAllHere) notify(chosen.length === 1 ? 'Uploaded' : `${chosen.length} files uploaded`)
    await refreshLists()
  }
  return (
    <>
      {running !== undefined && <Uploading {...running} />}
      <DropArea
        label="Drop to upload"
        isMany
        isDisabled={running !== undefined}
        takesPastes="anywhere"
        onFiles={(chosen) => void upload(chosen)}
      >
        <List
          {...props}
          listing={files(props.set, setAddress)}
          tools={
            <label {...looks({ kind: 'primary', size: 's' })}>
              Upload…
              <input
                type="file"
                multiple
                className="visually-hidden"
                disabled={running !== undefined}
                onChange={({ target }) => {
                  const chosen = takeFiles(target)
                  if (chosen.length > 0) void upload(chosen)
                }}
              />
            </label>
          }
        />
      </DropArea>
      {address !== undefined && (
        <Dialog
          isOpen
          title="Signed address"
          description="Whoever has it reads the file for an hour, as long as you may."
          onClose={() => setAddress(undefined)}
        >
          <code className={styles.secret}>{address}</code>
        </Dialog>
      )}
    </>
  )
}

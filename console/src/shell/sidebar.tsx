import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useRouter } from '@tanstack/react-router'
import {
  ChevronsUpDown,
  Eye,
  Keyboard,
  LogOut,
  Monitor,
  Moon,
  Puzzle,
  Search,
  Sun,
  Table2,
  UserRound,
} from 'lucide-react'
import { type Collection, catalogQuery } from '../app/catalog.ts'
import icon from '../app/icon.svg'
import { pages } from '../app/navigation.ts'
import { infoQuery, signOut, switchTenant, tenantsQuery, useMe } from '../app/session.ts'
import { setTheme, type Theme, useTheme } from '../app/theme.ts'
import { extensionsQuery } from '../extensions/extensions.ts'
import { Keys, Menu, type MenuEntry } from '../ui/menu.tsx'
import { Loading, Problem } from '../ui/states.tsx'
import { notifyError } from '../ui/toast.tsx'
import styles from './shell.module.css'

type SidebarProps = { readonly onSearch: () => void; readonly onHelp: () => void; readonly onPreview: () => void }

/** Where one can go: pages, collections, and whose account this is. */
export function Sidebar({ onSearch, onHelp, onPreview }: SidebarProps) {
  const me = useMe()
  return (
    <>
      <div className={styles.brand}>
        <Project />
      </div>
      <button type="button" className={styles.search} onClick={onSearch}>
        <Search aria-hidden="true" />
        <span>Search or go to…</span>
        <Keys>{isApple ? '⌘ K' : 'Ctrl K'}</Keys>
      </button>
      <nav className={styles.nav} aria-label="Pages">
        {pages
          .filter(({ isFor }) => isFor(me))
          .map(({ title, to, icon: Icon }) => (
            <Link key={to} to={to} className={styles.link} activeOptions={{ exact: to === '/data' }}>
              <Icon aria-hidden="true" />
              <span className={styles.name}>{title}</span>
            </Link>
          ))}
        <Extensions />
      </nav>
      <Collections />
      <div className={styles.foot}>
        <Account onHelp={onHelp} onPreview={onPreview} />
      </div>
    </>
  )
}

export const isApple = /Mac|iPhone|iPad/.test(navigator.platform)

/** The project's name, and where there are tenants, which one. */
function Project() {
  const { data: info } = useSuspenseQuery(infoQuery)
  const me = useMe()
  const { data: tenants = [] } = useQuery({ ...tenantsQuery, enabled: info.project.multitenant })
  const current = tenants.find(({ id }) => id === me.tenantId)
  const name = info.project.title ?? info.project.name ?? 'Console'
  const face = (
    <button type="button" className={styles.brandButton}>
      <img src={icon} alt="" />
      <span className={styles.brandName}>{current === undefined ? name : `${name} / ${current.name}`}</span>
      {tenants.length > 1 && <ChevronsUpDown aria-hidden="true" />}
    </button>
  )
  if (tenants.length < 2)
    return (
      <Link to="/data" className={styles.brandButton}>
        <img src={icon} alt="" />
        <span className={styles.brandName}>{name}</span>
      </Link>
    )
  const go = async (id: string) => {
    try {
      await switchTenant(id)
    } catch (error) {
      notifyError(error)
    }
  }
  const entries = tenants.map((tenant) => ({
    label: tenant.name,
    isChecked: tenant.id === me.tenantId,
    onSelect: () => void go(tenant.id),
  }))
  return <Menu trigger={face} title="Tenant" entries={entries} />
}

/** Those that have a page. Where they could not be listed, the pages of the console are there all the same. */
function Extensions() {
  const { data = [] } = useQuery(extensionsQuery)
  return data
    .filter(({ page }) => page !== null)
    .map(({ name, title }) => (
      <Link key={name} to="/extensions/$name/$" params={{ name, _splat: '' }} className={styles.link}>
        <Puzzle aria-hidden="true" />
        <span className={styles.name}>{title}</span>
      </Link>
    ))
}

function Collections() {
  const { data: catalog, error, refetch } = useQuery(catalogQuery)
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (catalog === undefined) return <Loading lines={5} label="Collections are loading" />
  const all = [...catalog.values()].sort((a, b) => a.label.localeCompare(b.label))
  const groups = {
    own: all.filter(({ isSystem, isJunction }) => !isSystem && !isJunction),
    links: all.filter(({ isSystem, isJunction }) => !isSystem && isJunction),
    system: all.filter(({ isSystem }) => isSystem),
  }
  return (
    <nav className={styles.collections} aria-label="Collections">
      <div className={styles.sectionHead}>
        <span>Collections</span>
      </div>
      <div className={styles.list}>
        <Links collections={groups.own} />
        <More title="Junctions" collections={groups.links} />
        <More title="System" collections={groups.system} />
      </div>
    </nav>
  )
}

function More({ title, collections }: { readonly title: string; readonly collections: readonly Collection[] }) {
  if (collections.length === 0) return null
  return (
    <details className={styles.group}>
      <summary>
        {title} ({collections.length})
      </summary>
      <Links collections={collections} />
    </details>
  )
}

function Links({ collections }: { readonly collections: readonly Collection[] }) {
  return collections.map(({ name, label }) => (
    <Link key={name} to="/data/$collection" params={{ collection: name }} className={styles.link} title={name}>
      <Table2 aria-hidden="true" />
      <span className={styles.name}>{label}</span>
    </Link>
  ))
}

const themes: readonly { readonly theme: Theme; readonly label: string; readonly icon: typeof Sun }[] = [
  { theme: 'system', label: 'Theme of the system', icon: Monitor },
  { theme: 'light', label: 'Light', icon: Sun },
  { theme: 'dark', label: 'Dark', icon: Moon },
]

function Account({ onHelp, onPreview }: Omit<SidebarProps, 'onSearch'>) {
  const me = useMe()
  const router = useRouter()
  const chosen = useTheme()
  const leave = async () => {
    try {
      await signOut()
    } catch (error) {
      notifyError(error)
    }
    await router.navigate({ to: '/sign-in' })
  }
  const entries: MenuEntry[] = [
    ...themes.map(({ theme, label, icon: Icon }) => ({
      label,
      icon: <Icon aria-hidden="true" />,
      isChecked: theme === chosen,
      onSelect: () => setTheme(theme),
    })),
    'separator',
    {
      label: 'Your account',
      icon: <UserRound aria-hidden="true" />,
      onSelect: () => void router.navigate({ to: '/account' }),
    },
    { label: 'Keyboard shortcuts', icon: <Keyboard aria-hidden="true" />, keys: '?', onSelect: onHelp },
    ...(me.isAdmin ? [{ label: 'See as somebody else…', icon: <Eye aria-hidden="true" />, onSelect: onPreview }] : []),
    'separator',
    { label: 'Sign out', icon: <LogOut aria-hidden="true" />, onSelect: () => void leave() },
  ]
  const face = (
    <button type="button" className={styles.brandButton}>
      <span className={styles.avatar} aria-hidden="true">
        {me.name.slice(0, 1)}
      </span>
      <span className={styles.brandName}>{me.name}</span>
      <ChevronsUpDown aria-hidden="true" />
    </button>
  )
  return <Menu trigger={face} title={[me.email, me.role?.name].filter(Boolean).join(' · ')} entries={entries} />
}
